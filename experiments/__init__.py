"""Experiments: the Hydra entry points, workloads, outputs and reports."""

from experiments.report.load import load

__all__ = ["load"]
