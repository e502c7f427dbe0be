"""The seam in plain torch operations, in the manner of TensorRT-LLM: argmax, `cumprod` of the
agreement, gathers.

It does less than ours: no stop ids, no limits, no faulty rows (others trim those on the host), so
it is only right where none occurs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from triton_kernels import Packed


def picks(logits: Tensor, vocab: int) -> Tensor:
    """[rows] int32."""
    return logits[:, :vocab].argmax(-1).int()


def pack(
    anchors: Tensor,
    drafts: Tensor,
    positions: Tensor,
    group_rows: Tensor,
    *,
    rows: int,
    bucket: int,
) -> tuple[Tensor, ...]:
    """As `pack_window`; rows: the groups' sum, which the host knows."""
    slots = torch.arange(len(anchors), dtype=torch.int32, device=anchors.device)
    owner = torch.repeat_interleave(slots, group_rows, output_size=rows)
    starts = pad(group_rows.cumsum(0), (1, 0))
    index = torch.arange(rows, device=anchors.device) - starts[owner]
    ids = torch.cat([anchors[:, None], drafts], 1)[owner, index]
    columns = torch.stack([ids, positions[owner] + index, owner, index])
    return *pad(columns, (0, bucket - rows)).unbind(), starts


def accept(
    picks: Tensor, ids: Tensor, starts: Tensor, anchors: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """kept [slots], tokens [slots, width], anchors [slots]."""
    place = torch.arange(width, device=picks.device)
    here = place < starts.diff()[:, None]
    row = (starts[:-1, None] + place).clamp(max=len(ids) - 1)
    pick, fed = picks[row], ids[row]
    agree = torch.cat([here[:, :1], (pick[:, :-1] == fed[:, 1:]) & here[:, 1:]], 1)
    keep = agree.int().cumprod(1)
    kept = keep.sum(1)
    last = pick.gather(1, (kept - 1).clamp(min=0)[:, None])[:, 0]
    return kept, pick * keep, torch.where(kept > 0, last, anchors)


def seam(
    logits: Tensor,
    vocab: int,
    window: Packed,
    proposals: Tensor,
    anchors: Tensor,
    drafts: Tensor,
    positions: Tensor,
    next_rows: Tensor,
    *,
    rows: int,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """From the logits to the next window, whose groups (and their rows, in all) are known: what
    was accepted, and that window."""
    accepted = accept(picks(logits, vocab), window.ids, window.starts, anchors, drafts.shape[1] + 1)
    kept, _, following = accepted
    drafts = following_drafts(window, kept, drafts, proposals)
    return accepted, pack(
        following, drafts, positions + kept, next_rows, rows=rows, bucket=len(logits)
    )


def following_drafts(window: Packed, kept: Tensor, drafts: Tensor, proposals: Tensor) -> Tensor:
    """[slots, depth]: the proposals after the row kept last; a slot that kept none has its old
    drafts."""
    last = (window.starts[:-1] + kept - 1).clamp(min=0)
    return torch.where(kept[:, None] > 0, proposals[last], drafts)
