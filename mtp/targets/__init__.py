"""Targets: models that verify windows of rows."""

from __future__ import annotations

from pathlib import Path

import torch

from mtp.targets.decoder import DecoderTarget
from mtp.targets.families import family_of, text_config
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.dtypes import check_dtype, choose_dtype
from mtp.targets.loading.weights import Progress


def load_target(
    path: str | Path,
    *,
    slots: int,
    context: int,
    dtype: torch.dtype | str = "stored",
    device: torch.device | str = "cpu",
    rows: int = 8,
    progress: Progress | None = None,
    cache: str | Path | None = None,
) -> DecoderTarget:
    """The target that a Hugging Face folder's config.json names: see `mtp/targets/families.py`.

    slots: requests at a time
    context: most prompt + output tokens of each
    dtype: fp32, bf16, stored (fp16 as bf16) or auto, see `choose_dtype`
    rows: most rows of a window, padding included
    progress: hears bytes read and bytes in all
    cache: a folder that keeps what was measured

    Raises ValueError, one line, for a folder that cannot be served.
    """
    checkpoint = check_target(path, context=context, dtype=dtype)
    kind = torch.device(device)
    choice = choose_dtype(
        checkpoint, dtype, device=kind, rows=rows, cache=None if cache is None else Path(cache)
    )
    target, config = family_of(checkpoint).target, text_config(checkpoint)
    made = target(
        checkpoint,
        config,
        slots=slots,
        context=context,
        dtype=choice.dtype,
        device=kind,
        rows=rows,
        progress=progress,
    )
    made.dtype_reason = choice.reason
    return made


def check_target(path: str | Path, *, context: int, dtype: torch.dtype | str) -> Checkpoint:
    """Raises ValueError, one line, for what can be refused before any weight is read.

    That is the folder, its architecture, tokenizer, context and dtype.
    """
    checkpoint = Checkpoint(path)
    config = text_config(checkpoint)
    config.check_context(context)
    if checkpoint.highest_token is not None and checkpoint.highest_token >= config.vocab:
        raise ValueError(
            f"checkpoint {checkpoint.path}: its tokenizer has ids up to "
            f"{checkpoint.highest_token}, but its embedding has {config.vocab} rows"
        )
    checkpoint.check_stop_ids(config.vocab)
    check_dtype(dtype)
    return checkpoint
