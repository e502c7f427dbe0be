"""Experiments: the Hydra entry points, workloads, outputs and reports."""

from experiments.results import load

__all__ = ["load"]
