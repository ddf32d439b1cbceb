"""What the ledger needs from the device, and what it answers before there is one."""

from typing import Any, Protocol

Record = dict[str, Any]


class Source(Protocol):
    """Count always, record details between `trace_start` and `trace_stop`.

    An implementation is process-wide: it sees the operations of every thread.
    """

    def executed_ops(self) -> dict[str, int]:
        """Return calls per operator, such as `aten::add.Tensor`, since the last clear."""

    def clear_op_counts(self) -> None:
        """Set every count of `executed_ops` to zero."""

    def counters(self) -> dict[str, int]:
        """Return totals such as `host_to_device.bytes` since the process started."""

    def trace_start(self) -> None:
        """Begin to record; not called again before `trace_stop`."""

    def trace_stop(self) -> list[Record]:
        """End recording and return the records, each with a `kind`."""


class NoDevice:
    """Answer for a process in which the device is not registered: nothing ever happened."""

    def executed_ops(self) -> dict[str, int]:
        """Return no operators."""
        return {}

    def clear_op_counts(self) -> None:
        """Leave nothing as it is."""

    def counters(self) -> dict[str, int]:
        """Return no totals."""
        return {}

    def trace_start(self) -> None:
        """Record nothing."""

    def trace_stop(self) -> list[Record]:
        """Return no records."""
        return []
