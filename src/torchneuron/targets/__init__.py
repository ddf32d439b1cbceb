"""What the software for Trainium refuses, as data: a row per documented refusal."""

from torchneuron.targets.refusals import (
    CATEGORIES,
    DEFAULT_TARGET,
    EVERY_OP,
    Category,
    Refusal,
    Target,
    check_category,
    load_target,
    target_names,
)
from torchneuron.targets.statements import CONDITIONS, Statement, load_statements

__all__ = [
    "CATEGORIES",
    "CONDITIONS",
    "DEFAULT_TARGET",
    "EVERY_OP",
    "Category",
    "Refusal",
    "Statement",
    "Target",
    "check_category",
    "load_statements",
    "load_target",
    "target_names",
]
