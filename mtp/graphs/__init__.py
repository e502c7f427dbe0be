"""Capture and replay of window phases: on CUDA, on a CPU, on tapes."""
