"""Load what is public on programs that a target's compiler takes or refuses, a row per statement.

The rows live in the TOML files of `programs/`, in the words of StableHLO; a target's own file names
those that it goes by. `torchneuron.lowering.legality` applies them to a module. Stability: E.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, get_args

from torchneuron.errors import DataError
from torchneuron.targets.refusals import DEFAULT_TARGET, Confidence, load_target

Answer = Literal["yes", "no", "unknown"]
Fact = bool | int | str
EVERY_OPERATION = "*"

# What `when` may ask of an operation, and of which kind the answer is.
CONDITIONS: Mapping[str, type] = MappingProxyType(
    {
        "above_32_bits": bool,
        "algorithm": str,
        "base_dilated": bool,
        "block_size": int,
        "circular": bool,
        "comparator": str,
        "computation": str,
        "constant_index": bool,
        "constant_past_end": bool,
        "constant_start": bool,
        "disjoint": bool,
        "distribution": str,
        "divisible_by_4": bool,
        "dynamic": bool,
        "emax_scale": bool,
        "equal_batches": bool,
        "equal_contracting": bool,
        "group_size": int,
        "half_input": bool,
        "iota_past_end": bool,
        "json_config": bool,
        "lhs_dilated": bool,
        "lhs_rank": int,
        "near_last_dim": bool,
        "num_bytes": int,
        "num_inputs": int,
        "num_results": int,
        "packed_lhs": bool,
        "packed_output": bool,
        "rhs_dilated": bool,
        "rhs_rank": int,
        "same_width": bool,
        "strided": bool,
        "target": str,
        "trip_count": str,
        "wide_output": bool,
        "window_dilated": bool,
    }
)
# Element types as a module prints them.
ELEMENT_TYPES = frozenset(
    "i1 i2 i4 i8 i16 i32 i64 ui2 ui4 ui8 ui16 ui32 ui64 f16 bf16 tf32 f32 f64 complex<f32> "
    "complex<f64> f8E5M2 f8E4M3 f8E3M4 f8E4M3FN f8E4M3FNUZ f8E4M3B11FNUZ f8E5M2FNUZ f8E8M0FNU "
    "f4E2M1FN".split()
)
_CHIPS = frozenset({"trn1", "trn2", "trn3"})
_RANGES = frozenset({"min", "max", "not_in", "not_multiple_of"})
_NEEDED = frozenset({"id", "verdict", "summary", "source", "confidence"})
_LISTS = ("ops", "but", "dtypes", "chips", "targets", "other_than")
_OPTIONAL = frozenset({"code", "when", "outside", *_LISTS})


@dataclass(frozen=True, slots=True)
class Statement:
    """Hold one public statement.

    Attributes:
        id: Names the row.
        verdict: What is stated of the operations that the row describes.
        summary: In a few words, and what softens it.
        source: Page, release note or report.
        confidence: Of whom: the vendor, a user on hardware, or a conclusion of ours.
        code: The compiler's error, empty where none is known.
        ops: Names without the dialect, `*` for every operation, `input` and `output` of a program.
        but: Operations that `*` leaves out.
        dtypes: Element types, empty for any.
        chips: Empty for every chip.
        targets: Custom call targets, empty for any.
        other_than: Custom call targets that the row is not for.
        when: What must hold of the operation besides; names and kinds are in `CONDITIONS`.
        outside: Why no module can decide the row; empty where one can.
    """

    id: str
    verdict: Answer
    summary: str
    source: str
    confidence: Confidence
    code: str = ""
    ops: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    chips: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    other_than: tuple[str, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict, hash=False)
    outside: str = ""

    @property
    def is_general(self) -> bool:
        """Return whether the row speaks of element types or shapes in every operation."""
        return EVERY_OPERATION in self.ops

    @property
    def label(self) -> str:
        """Return the compiler's code, or the id of the row where there is none."""
        return self.code or self.id

    def holds_of(self, op: str, facts: Mapping[str, Fact]) -> bool:
        """Return whether the row describes an operation, its element types left aside.

        Args:
            op: Name without the dialect.
            facts: What is known of it; a condition on an unknown fact does not hold.
        """
        if op not in self.ops and (not self.is_general or op in self.but):
            return False
        target = facts.get("target", "")
        if (self.targets and target not in self.targets) or target in self.other_than:
            return False
        return all(
            name in facts and _answers(wanted, facts[name]) for name, wanted in self.when.items()
        )


def _answers(wanted: Any, fact: Any) -> bool:
    """Return whether a fact is the wanted value, one of a list, or within a range."""
    if isinstance(wanted, list):
        return fact in wanted
    if not isinstance(wanted, dict):
        return bool(fact == wanted)
    return (
        fact >= wanted.get("min", fact)
        and fact <= wanted.get("max", fact)
        and fact not in wanted.get("not_in", ())
        and ("not_multiple_of" not in wanted or fact % wanted["not_multiple_of"] != 0)
    )


def parse_statement(entry: Mapping[str, Any], where: str) -> Statement:
    """Turn one `[[statement]]` table into a row.

    Args:
        entry: The table.
        where: File name, for messages.

    Raises:
        DataError: A field is missing, unknown, or outside its allowed values.
    """
    place = f"{where}: row `{entry.get('id', '?')}`"
    if missing := _NEEDED - entry.keys():
        raise DataError(f"{place} lacks {', '.join(sorted(missing))}")
    if unknown := entry.keys() - _NEEDED - _OPTIONAL:
        raise DataError(f"{place} has unknown fields {', '.join(sorted(unknown))}")
    _check_words(entry, place)
    _check_when(entry.get("when", {}), place)
    if not entry.get("ops") and not entry.get("outside"):
        raise DataError(f"{place} names no ops", hint='"*" stands for every operation')
    if entry["confidence"] == "inferred" and entry["verdict"] != "unknown":
        raise DataError(f"{place} is inferred, so its verdict is unknown: nobody documents it")
    if entry.get("code") and entry["verdict"] == "yes":
        raise DataError(f"{place} is accepted and has the code {entry['code']}")
    values: dict[str, Any] = {
        key: tuple(value) if key in _LISTS else value for key, value in entry.items()
    }
    values["when"] = MappingProxyType(dict(entry.get("when", {})))
    return Statement(**values)


def _check_words(entry: Mapping[str, Any], place: str) -> None:
    """Check the fields whose values come from a list."""
    for key in _LISTS:
        value = entry.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise DataError(f"{place}: {key} is no list of words")
    for key, allowed in (("verdict", get_args(Answer)), ("confidence", get_args(Confidence))):
        if entry[key] not in allowed:
            raise DataError(
                f"{place} has the {key} `{entry[key]}`", hint=f"allowed: {', '.join(allowed)}"
            )
    for key, known in (("dtypes", ELEMENT_TYPES), ("chips", _CHIPS)):
        if strange := set(entry.get(key, ())) - known:
            raise DataError(f"{place} has unknown {key} {', '.join(sorted(strange))}")
    if entry.get("code") and not re.fullmatch(r"NCC_[A-Z]+\d+", entry["code"]):
        raise DataError(f"{place} has the code `{entry['code']}`: it is not of the form NCC_...")


def _check_when(when: Mapping[str, Any], place: str) -> None:
    for name, wanted in when.items():
        kind = CONDITIONS.get(name)
        if kind is None:
            raise DataError(f"{place} asks for `{name}`: no reader of modules knows that")
        if isinstance(wanted, dict):
            if kind is not int or not wanted or wanted.keys() - _RANGES:
                raise DataError(f"{place}: `{name}` has no range of this form")
            continue
        values = wanted if isinstance(wanted, list) else [wanted]
        if not values or any(type(value) is not kind for value in values):
            raise DataError(f"{place}: `{name}` is compared with {wanted}, not {kind.__name__}")


def gather_statements(rows: Iterable[tuple[Mapping[str, Any], str]]) -> tuple[Statement, ...]:
    """Turn tables with the names of their files into rows, in order.

    Raises:
        DataError: A row is malformed, or an id occurs twice.
    """
    found: dict[str, Statement] = {}
    for entry, where in rows:
        row = parse_statement(entry, where)
        if row.id in found:
            raise DataError(f"{where}: the id `{row.id}` occurs twice")
        found[row.id] = row
    return tuple(found.values())


@cache
def load_statements(target: str = DEFAULT_TARGET) -> tuple[Statement, ...]:
    """Return the statements on programs that a target goes by, read once per process.

    Raises:
        ArgumentError: There is no such target.
        DataError: A file breaks the rules of `parse_statement`, or an id occurs twice.
    """
    names = load_target(target).programs
    folder = files(__package__).joinpath("programs")
    rows: list[tuple[Mapping[str, Any], str]] = []
    for name in names:
        text = folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")
        rows += [
            (entry, f"programs/{name}.toml") for entry in tomllib.loads(text).get("statement", ())
        ]
    return gather_statements(rows)
