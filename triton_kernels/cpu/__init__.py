"""The operations' kernels for CPUs, compiled by Numba at their first use. Without Numba the plain
torch twins run instead.

Their bits are what the program says: no fast-math, every fused multiply-add is written as one, sums
have a written order. So a row's result depends neither on its company nor on how a loop is
vectorised.
"""
