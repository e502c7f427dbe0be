"""Targets: models that verify windows of rows."""

from __future__ import annotations

from pathlib import Path

import torch

from mtp.targets.checkpoint import Checkpoint
from mtp.targets.qwen3_5 import Qwen35Target


def load_target(
    path: str | Path, *, slots: int, context: int, dtype: torch.dtype, device: torch.device | str = "cpu", rows: int = 8
) -> Qwen35Target:
    """The target that a Hugging Face folder's config.json names: Qwen 3.5 (dense hybrid) or dense Qwen 3.

    slots: requests at a time; context: most prompt + output tokens of each; dtype: fp32 or bf16; rows: most rows of a
    window, padding included. A folder that cannot be served raises a one-line ValueError."""
    return Qwen35Target(Checkpoint(path), slots=slots, context=context, dtype=dtype, device=device, rows=rows)
