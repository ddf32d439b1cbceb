"""Load what a target refuses: one row per documented refusal, with its source.

A target is the software that a program is meant for. Its rows live in the TOML files beside this
module, the rows of the compiler in a file that targets include. Stability: E.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal, get_args

from torchneuron.errors import ArgumentError, DataError, suggestion

Category = Literal[
    "dtype",
    "memory",
    "dynamic_shape",
    "sparse",
    "host_fallback",
    "collective",
    "device_index",
]
Confidence = Literal["documented", "user", "inferred"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
DEFAULT_TARGET = "torch_neuronx_2_33"
EVERY_OP = "*"

_TARGET_NAMES = ("torch_neuronx_2_33", "torchneuron")
_NEEDED = frozenset({"id", "category", "code", "chips", "summary", "hint", "source", "confidence"})
_OPTIONAL = frozenset({"dtypes", "ops"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Hold one documented refusal.

    `code` is the compiler's, empty where none is known. `dtypes` are torch dtype names; `ops` are
    aten names without namespace and overload, empty for every operation.
    """

    id: str
    category: Category
    code: str
    chips: tuple[str, ...]
    summary: str
    hint: str
    source: str
    confidence: Confidence
    dtypes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return the compiler's code, or the id of the row where there is none."""
        return self.code or self.id


@dataclass(frozen=True, slots=True)
class Target:
    """Hold every refusal of one target, under its id.

    `programs` names the files of statements on whole programs, for `load_statements`.
    """

    name: str
    title: str
    refusals: Mapping[str, Refusal]
    programs: tuple[str, ...] = ()

    def rows(self, category: Category, chip: str) -> tuple[Refusal, ...]:
        """Return the refusals of a category on a chip, in the order of the files."""
        return tuple(
            row
            for row in self.refusals.values()
            if row.category == category and chip in row.chips
        )  # fmt: skip

    def dtype_rules(self, chip: str) -> list[tuple[str, tuple[str, ...]]]:
        """Return the category `dtype` as (operator, dtype names), each operator once.

        The operator is `*` for every operation, where arguments and results count, or a name such
        as `aten::mm` for all its overloads, where the first tensor argument alone counts: an
        int64 index beside a float tensor is not refused.
        """
        rules: dict[str, list[str]] = {}
        for row in self.rows("dtype", chip):
            for op in [f"aten::{op}" for op in row.ops] or [EVERY_OP]:
                known = rules.setdefault(op, [])
                known.extend(dtype for dtype in row.dtypes if dtype not in known)
        return [(op, tuple(dtypes)) for op, dtypes in rules.items()]

    def find_dtype(self, op: str, dtype: str, chip: str) -> Refusal | None:
        """Return the row that refuses a dtype in an operation, the most specific one first.

        Args:
            op: A name such as `aten::mm` or `aten::mm.out`.
            dtype: A torch dtype name such as `int64`.
            chip: A chip name such as `trn2`.
        """
        name = op.removeprefix("aten::").partition(".")[0]
        matching = [row for row in self.rows("dtype", chip) if dtype in row.dtypes]
        specific = [row for row in matching if name in row.ops]
        general = [row for row in matching if not row.ops]
        return next(iter(specific + general), None)


def target_names() -> tuple[str, ...]:
    """Return the targets that `TORCHNEURON_TARGET` and `strict(target=...)` take."""
    return _TARGET_NAMES


def parse_row(entry: Mapping[str, Any], where: str) -> Refusal:
    """Turn one `[[refusal]]` table into a row.

    Args:
        entry: The table.
        where: File name, for messages.

    Raises:
        DataError: A field is missing, unknown or outside its allowed values.
    """
    place = f"{where}: row `{entry.get('id', '?')}`"
    if missing := _NEEDED - entry.keys():
        raise DataError(f"{place} lacks {', '.join(sorted(missing))}")
    if unknown := entry.keys() - _NEEDED - _OPTIONAL:
        raise DataError(f"{place} has unknown fields {', '.join(sorted(unknown))}")
    for key, allowed in (("category", CATEGORIES), ("confidence", get_args(Confidence))):
        if entry[key] not in allowed:
            raise DataError(
                f"{place} has the {key} `{entry[key]}`", hint=f"allowed: {', '.join(allowed)}"
            )
    if entry["category"] == "dtype" and not entry.get("dtypes"):
        raise DataError(f"{place} is of category dtype and names no dtypes")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()
    }
    return Refusal(**values)


def _read(name: str) -> dict[str, Any]:
    text = files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def merge(
    name: str,
    data: Mapping[str, Any],
    included: Iterable[Refusal],
    programs: Iterable[str] = (),
) -> Target:
    """Join a target's own rows with the included ones, less those that it drops.

    Raises:
        DataError: An id occurs twice, or a dropped id is not among the included rows.
    """
    rows = {row.id: row for row in included}
    for dropped in data.get("drops", ()):
        if rows.pop(dropped, None) is None:
            raise DataError(f"{name}.toml drops `{dropped}`: no included row has that id")
    for entry in data.get("refusal", ()):
        row = parse_row(entry, f"{name}.toml")
        if row.id in rows:
            raise DataError(f"{name}.toml: the id `{row.id}` occurs twice")
        rows[row.id] = row
    files_of_programs = (*programs, *data.get("programs", ()))
    return Target(name, data["title"], MappingProxyType(rows), files_of_programs)


@cache
def _load_file(name: str) -> Target:
    data = _read(name)
    others = [_load_file(other) for other in data.get("includes", ())]
    rows = [row for other in others for row in other.refusals.values()]
    return merge(name, data, rows, [file for other in others for file in other.programs])


def load_target(name: str = DEFAULT_TARGET) -> Target:
    """Return a target by name, read once per process.

    Raises:
        ArgumentError: There is no such target.
        DataError: A file breaks the rules of `parse_row` or `merge`.
    """
    if name not in _TARGET_NAMES:
        raise ArgumentError(
            f"unknown target `{name}`: known are {', '.join(_TARGET_NAMES)}",
            hint=suggestion(name, _TARGET_NAMES) or "unset TORCHNEURON_TARGET for the default",
        )
    return _load_file(name)


def check_category(name: str) -> Category:
    """Return a category by name.

    Raises:
        ArgumentError: There is no such category.
    """
    for category in CATEGORIES:
        if name == category:
            return category
    raise ArgumentError(
        f"unknown category `{name}`: known are {', '.join(CATEGORIES)}",
        hint=suggestion(name, CATEGORIES) or "leave the categories out to mean all of them",
    )
