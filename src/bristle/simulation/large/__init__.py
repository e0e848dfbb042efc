"""Worlds of up to a million peers, as torch tensors on a CUDA device or the CPU."""
