"""What drafters that chain on device data share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from mtp.buckets import Buckets
from triton_kernels import Packed, row_argmax


class Chain(NamedTuple):
    """A window of its own: a row for each slot that kept something, in slot order, then padding."""

    starts: Tensor  # [slots + 1] int32
    last: Tensor  # [width] the verified window's row that each continues: its slot's last kept one
    row: Tensor  # [slots] where a slot's drafts are; only of slots that kept something


def chain_after(window: Packed, kept: Tensor, buckets: Buckets) -> Chain:
    """The chain that continues a committed window. kept: [slots] int32.

    The width follows from shapes alone and is rounded up as a window's is.
    """
    slots, bucket = len(kept), len(window.ids)
    active = kept > 0
    starts = pad(active.cumsum(0, dtype=torch.int32), (1, 0))
    width = buckets.round_up(min(slots, bucket))
    slot_of = pad(torch.argsort(~active, stable=True), (0, max(0, width - slots)))[:width]
    last = (window.starts[:-1] + kept - 1).clamp(min=0)[slot_of].clamp(max=bucket - 1)
    return Chain(starts, last, starts[:-1].clamp(max=width - 1))


def best_of(logits: Tensor, vocab: int) -> tuple[Tensor, Tensor]:
    """Picks [rows] int32 and their probabilities [rows] fp32, 0 in faulty rows.

    logits: [rows, >= vocab]; columns from `vocab` on never win.
    """
    picks = row_argmax(logits, vocab=vocab)
    chance = logits[:, :vocab].float().softmax(-1).gather(1, picks.ids[:, None].long())[:, 0]
    return picks.ids, torch.where(picks.faults, 0.0, chance)
