"""Targets: models that verify windows of rows."""

from __future__ import annotations

from pathlib import Path

import torch

from mtp.targets.checkpoint import Checkpoint
from mtp.targets.decoder import DecoderTarget
from mtp.targets.families import family_of, text_config
from mtp.targets.weights import Progress

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load_target(
    path: str | Path,
    *,
    slots: int,
    context: int,
    dtype: torch.dtype | str = "auto",
    device: torch.device | str = "cpu",
    rows: int = 8,
    progress: Progress | None = None,
) -> DecoderTarget:
    """The target that a Hugging Face folder's config.json names: see `mtp/targets/families.py`.

    slots: requests at a time; context: most prompt + output tokens of each; dtype: fp32, bf16 or auto (as stored, fp16 as
    bf16); rows: most rows of a window, padding included; progress: hears bytes read and bytes in all.
    A folder that cannot be served raises a one-line ValueError."""
    checkpoint, dtype = check_target(path, context=context, dtype=dtype)
    target, config = family_of(checkpoint).target, text_config(checkpoint)
    return target(checkpoint, config, slots=slots, context=context, dtype=dtype, device=device, rows=rows, progress=progress)


def check_target(path: str | Path, *, context: int, dtype: torch.dtype | str) -> tuple[Checkpoint, torch.dtype]:
    """What can be refused before any weight is read: the folder, its architecture, context and dtype."""
    checkpoint = Checkpoint(path)
    config = text_config(checkpoint)
    config.check_context(context)
    if checkpoint.highest_token is not None and checkpoint.highest_token >= config.vocab:
        raise ValueError(
            f"checkpoint {checkpoint.path}: its tokenizer has ids up to {checkpoint.highest_token}, "
            f"but its embedding has {config.vocab} rows"
        )
    if dtype == "auto":
        stored = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype")
        return checkpoint, torch.float32 if stored == "float32" else torch.bfloat16
    if isinstance(dtype, torch.dtype):
        return checkpoint, dtype
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}, expected auto, {' or '.join(DTYPES)}")
    return checkpoint, DTYPES[dtype]
