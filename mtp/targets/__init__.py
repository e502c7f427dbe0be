"""Targets: models that verify windows of rows."""

from __future__ import annotations

from pathlib import Path

import torch

from mtp.targets.checkpoint import Checkpoint
from mtp.targets.qwen3_5 import Qwen35Target

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_target(
    path: str | Path, *, slots: int, context: int, dtype: torch.dtype | str = "auto", device: torch.device | str = "cpu", rows: int = 8
) -> Qwen35Target:
    """The target that a Hugging Face folder's config.json names: Qwen 3.5 (dense hybrid) or dense Qwen 3.

    slots: requests at a time; context: most prompt + output tokens of each; dtype: fp32, bf16 or auto (as stored, fp16 as
    bf16); rows: most rows of a window, padding included. A folder that cannot be served raises a one-line ValueError."""
    if isinstance(context, bool) or not isinstance(context, int):
        raise ValueError(f"context is {context!r}, expected an integer")
    checkpoint = Checkpoint(path)
    if dtype == "auto":
        stored = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype")
        dtype = torch.float32 if stored == "float32" else torch.bfloat16
    elif isinstance(dtype, str):
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}, expected auto, {' or '.join(DTYPES)}")
        dtype = DTYPES[dtype]
    return Qwen35Target(checkpoint, slots=slots, context=context, dtype=dtype, device=device, rows=rows)
