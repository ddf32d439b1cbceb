"""Say of each operation of a program what is public on it: Trainium's compiler takes it, or not.

A judgement of documents, not of a compiler: what nobody documents is `unknown`. Judge the program
that a chip would get, `lower(graph, sizes)` without rules of this host, whose calls into the
process are no part of it. Stability: E.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torchneuron.lowering.emit.module import Module
from torchneuron.lowering.emit.read import Operation, operations
from torchneuron.targets import DEFAULT_TARGET, Statement, load_statements

Outcome = Literal["documented yes", "documented no", "unknown"]
_OUTCOMES: dict[str, Outcome] = {
    "yes": "documented yes",
    "no": "documented no",
    "unknown": "unknown",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold what is public on one kind of operation at one place of a program.

    Attributes:
        op: Name with its dialect; `input` or `output` for those of the program.
        dtypes: Element types of what it computes with, as a module prints them.
        outcome: What is documented.
        statement: The row that decided, None where there is no row: nobody says anything.
        node: Name of the graph's node that the operation was written for.
        file: Of the user's code, empty where unknown.
        line: In that file, from 1; 0 where unknown.
        count: How many such operations the node has.
    """

    op: str
    dtypes: tuple[str, ...]
    outcome: Outcome
    statement: Statement | None
    node: str = ""
    file: str = ""
    line: int = 0
    count: int = 1

    @property
    def code(self) -> str:
        """Return the compiler's error, empty where none is known."""
        return self.statement.code if self.statement is not None else ""

    @property
    def source(self) -> str:
        """Return the page or report, empty where nobody says anything."""
        return self.statement.source if self.statement is not None else ""

    @property
    def label(self) -> str:
        """Return the outcome with the code of a refusal, for tables."""
        return labelled(self.outcome, [self.code])

    def describe(self) -> str:
        """Return one line: what, outcome, why, where."""
        place = f" at {self.file}:{self.line}" if self.file else ""
        why = self.statement.summary if self.statement is not None else "no public statement"
        return f"{self.op} ({', '.join(self.dtypes)}): {self.label}: {why}{place}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold the findings on one program, in program order, for one target and chip."""

    target: str
    chip: str
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """Return the worst of the findings: a refusal, then what is unknown."""
        return worst(each.outcome for each in self.findings)

    @property
    def refused(self) -> tuple[Finding, ...]:
        """Return what is documented to be refused."""
        return tuple(each for each in self.findings if each.outcome == "documented no")

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """Return what nobody documents."""
        return tuple(each for each in self.findings if each.outcome == "unknown")

    @property
    def label(self) -> str:
        """Return the outcome with the codes of all refusals, for tables."""
        return labelled(self.outcome, [each.code for each in self.refused])


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of a whole: a refusal decides, then what is unknown."""
    found = set(outcomes)
    for outcome in ("documented no", "unknown"):
        if outcome in found:
            return outcome
    return "documented yes"


def labelled(outcome: Outcome, codes: Sequence[str]) -> str:
    """Write an outcome with codes: `documented no (NCC_EVRF029)`."""
    known = sorted({code for code in codes if code})
    return f"{outcome} ({', '.join(known)})" if known and outcome == "documented no" else outcome


def judge(module: Module, target: str = DEFAULT_TARGET, chip: str = "trn2") -> Verdict:
    """Read a program and return what is public on each of its operations.

    Args:
        module: Of a program for a chip; all shapes static.
        target: Name of the software that it is meant for, as `TORCHNEURON_TARGET` takes it.
        chip: `trn1`, `trn2` or `trn3`.

    Raises:
        ArgumentError: There is no such target.
        DataError: A statement of that target is malformed.
    """
    rows = [
        row
        for row in load_statements(target)
        if not row.outside and (not row.chips or chip in row.chips)
    ]
    found: Counter[Finding] = Counter()
    answers: dict[Hashable, tuple[Outcome, Statement | None]] = {}
    for op in operations(module):
        kind = (op.name, op.dtypes, op.every_dtype, *op.facts.items())
        if kind not in answers:
            answers[kind] = judge_operation(op, rows)
        outcome, statement = answers[kind]
        found[Finding(op.name, op.dtypes, outcome, statement, op.node, op.file, op.line)] += 1
    counted = [replace(finding, count=count) for finding, count in found.items()]
    return Verdict(target, chip, tuple(counted))


def judge_operation(op: Operation, rows: Sequence[Statement]) -> tuple[Outcome, Statement | None]:
    """Return what is public on one operation, and the row that says it.

    A refusal decides, rows that name the operation before those on element types; then a row that
    calls it unknown. It is accepted if a row accepts it and rows accept each of its element types.
    """
    holding = [row for row in rows if row.holds_of(op.short_name, op.facts) and _concerns(row, op)]
    holding.sort(key=lambda row: row.is_general)
    for answer in ("no", "unknown"):
        for row in holding:
            if row.verdict == answer:
                return _OUTCOMES[answer], row
    named = [row for row in holding if not row.is_general]
    accepted = {dtype for row in holding for dtype in row.dtypes}
    if named and set(op.every_dtype) <= accepted:
        return "documented yes", named[0]
    return "unknown", None


def _concerns(row: Statement, op: Operation) -> bool:
    """Return whether a row speaks of one of an operation's element types."""
    types = op.every_dtype if row.is_general else op.dtypes
    return not row.dtypes or any(dtype in row.dtypes for dtype in types)
