"""Runtimes: what compiles StableHLO and runs it."""
