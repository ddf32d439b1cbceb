"""Sparse tensors of the device: every layout, compared with the CPU bit for bit."""
