"""Conformance of a device with PyTorch on CPU, which is the oracle."""
