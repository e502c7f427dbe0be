"""Picks: the target's own choice after each row of a window."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require


class Picks(NamedTuple):
    ids: Tensor  # [rows] int32; 0 where the row is faulty
    faults: Tensor  # [rows] bool


def row_argmax_torch(
    logits: Tensor, *, vocab: int | None = None, banned: Tensor | None = None, banned_counts: Tensor | None = None
) -> Picks:
    """The highest logit of every row; the lowest id wins a tie.

    logits: [rows, width] bf16, fp16 or fp32, any row stride. vocab: real columns (<= width); columns past it never win.
    banned: [rows, M] int32 ids that may not win in that row, the first banned_counts[row] (int32) of each row count.
    A row with a NaN among its real columns, or with nothing above -inf left, is faulty.
    """
    require("logits", logits, shape=[None, None], dtypes=[torch.bfloat16, torch.float16, torch.float32])
    rows, width = logits.shape
    vocab = width if vocab is None else vocab
    if not 1 <= vocab <= width:
        raise ValueError(f"vocab is {vocab}, expected 1 to {width} (the width of logits)")
    real = logits[:, :vocab].float()
    faults = real.isnan().any(1)
    if (banned is None) != (banned_counts is None):
        raise ValueError("banned and banned_counts: got one of them, expected both or neither")
    if banned is not None and banned_counts is not None:
        require("banned", banned, shape=[rows, None], dtypes=[torch.int32], like=logits)
        require("banned_counts", banned_counts, shape=[rows], dtypes=[torch.int32], like=logits)
        real = real.masked_fill(_banned_columns(banned, banned_counts, vocab), float("-inf"))
    best = real.amax(1, keepdim=True)  # -0.0 == +0.0 in the comparison below
    columns = torch.arange(vocab, device=logits.device, dtype=torch.int32)
    ids = torch.where(real == best, columns, vocab).amin(1)
    faults = faults | (best[:, 0] == float("-inf"))
    return Picks(torch.where(faults, 0, ids).int(), faults)


def _banned_columns(banned: Tensor, counts: Tensor, vocab: int) -> Tensor:
    """[rows, vocab] bool. Ids outside the vocabulary ban nothing."""
    rows, most = banned.shape
    counted = torch.arange(most, device=banned.device)[None] < counts[:, None]
    counted = counted & (banned >= 0) & (banned < vocab)
    spare = torch.where(counted, banned, vocab).long()  # what does not count lands in a column that is cut off
    mask = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=banned.device)
    return mask.scatter_(1, spare, torch.ones_like(spare, dtype=torch.bool))[:, :vocab]


row_argmax = row_argmax_torch
