"""Eager operators by other means than the CPU's kernels."""
