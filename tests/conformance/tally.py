"""Count verdicts by dtype and kind of check."""

from dataclasses import dataclass, field

import torch

from conformance.judge import Verdict

ANY_DTYPE = "any"
_MAX_FAILURES_KEPT = 3


@dataclass(slots=True)
class Tally:
    """What came of all scenarios of one kind for one case and dtype.

    Attributes:
        accepted: Scenarios that CPU ran without an exception.
        rejected: Scenarios for which CPU raised.
        failed: Scenarios in which the device differed from CPU.
        apart: Those of them that are more than rounding.
        failures: A text for the first few of those that failed.
    """

    accepted: int = 0
    rejected: int = 0
    failed: int = 0
    apart: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Give "failed", "passed" or "not applicable" (CPU took no scenario)."""
        if self.failed:
            return "failed"
        return "passed" if self.accepted else "not applicable"

    def add(self, verdict: Verdict, label: str) -> None:
        """Count one verdict; `label` says which scenario it was."""
        self.accepted += verdict.accepted
        self.rejected += not verdict.accepted
        self.failed += verdict.failure is not None
        self.apart += verdict.failure is not None and not verdict.close
        if verdict.failure and len(self.failures) < _MAX_FAILURES_KEPT:
            self.failures.append(f"{label}: {verdict.failure}")


class Results:
    """The tallies of one case, by dtype and kind."""

    def __init__(self) -> None:
        self.tallies: dict[tuple[str, str], Tally] = {}

    def tally(self, dtype: torch.dtype | None, kind: str) -> Tally:
        """Return the tally of `dtype` (None: the check has no dtype), made if it is new."""
        name = ANY_DTYPE if dtype is None else str(dtype).removeprefix("torch.")
        return self.tallies.setdefault((name, kind), Tally())
