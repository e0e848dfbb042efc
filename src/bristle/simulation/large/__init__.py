"""Worlds of up to a million peers: torch tensors, on a CUDA device or on the processor."""
