"""Accept: how many rows of each group are kept, what they emit, and whether the slot ends. The device's `commit_group`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require

RUNNING, STOP, LENGTH, ERROR = range(4)  # values of Accepted.finish


class Accepted(NamedTuple):
    kept: Tensor  # [slots] int32; 0 for a slot without a group
    tokens: Tensor  # [slots, width] int32; the first kept[slot] of each slot count, the rest is 0
    anchors: Tensor  # [slots] int32; the last emitted token, or the old anchor where nothing was emitted
    finish: Tensor  # [slots] int32; RUNNING, STOP, LENGTH or ERROR


def accept_prefix_torch(
    picks: Tensor,
    faults: Tensor,
    ids: Tensor,
    starts: Tensor,
    anchors: Tensor,
    positions: Tensor,
    produced: Tensor,
    max_new: Tensor,
    context: Tensor,
    min_new: Tensor,
    stop_ids: Tensor,
    stop_counts: Tensor,
    *,
    width: int,
) -> Accepted:
    """The accepted prefix of every group, trimmed by stop tokens, limits and faults.

    picks, ids: [rows] int32, faults: [rows] bool: per row of the window. starts: [slots + 1] int32 as from `pack_window`.
    Per slot, [slots] int32: anchors, positions (of the anchor), produced (tokens emitted so far), max_new, context (most
    prompt + output tokens), min_new (a stop id among the first min_new tokens does not end). stop_ids: [slots, M] int32, the
    first stop_counts[slot] count; a slot that ignores stops has count 0. width: the most rows of a group.

    Row 0 is kept unless it is faulty. Row k is kept iff pick[k-1] == its draft, pick[k-1] does not end the slot,
    produced + k < max_new, position + k + 2 <= context, and it is not faulty. A faulty row that the walk reaches ends the
    slot with ERROR after the rows before it.
    """
    require("picks", picks, shape=[None], dtypes=[torch.int32])
    require("anchors", anchors, shape=[None], dtypes=[torch.int32], like=picks)
    rows, slots = picks.shape[0], anchors.shape[0]
    require("faults", faults, shape=[rows], dtypes=[torch.bool], like=picks)
    require("ids", ids, shape=[rows], dtypes=[torch.int32], like=picks)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=picks)
    per_slot = {"positions": positions, "produced": produced, "max_new": max_new}
    per_slot |= {"context": context, "min_new": min_new, "stop_counts": stop_counts}
    for name, tensor in per_slot.items():
        require(name, tensor, shape=[slots], dtypes=[torch.int32], like=picks)
    require("stop_ids", stop_ids, shape=[slots, None], dtypes=[torch.int32], like=picks)
    if width < 1:
        raise ValueError(f"width is {width}, expected at least 1")

    k = torch.arange(width, dtype=torch.int32, device=picks.device)[None]  # [1, width]
    group = (starts[1:] - starts[:-1])[:, None]  # [slots, 1]
    here = k < group
    row = (starts[:-1, None] + k).clamp(0, max(rows - 1, 0)).long()
    pick, draft, fault = picks[row], ids[row], faults[row]  # [slots, width]
    listed = torch.arange(stop_ids.shape[1], device=picks.device)[None] < stop_counts[:, None]  # [slots, M]
    stop = ((pick[:, :, None] == stop_ids[:, None]) & listed[:, None]).any(2) & (produced[:, None] + k >= min_new[:, None])

    # reached[k]: the walk comes to row k, by an agreeing draft that neither ended the slot nor ran out of room
    follows = (pick[:, :-1] == draft[:, 1:]) & ~stop[:, :-1] & here[:, 1:]
    follows &= (produced[:, None] + k[:, 1:] < max_new[:, None]) & (positions[:, None] + k[:, 1:] + 2 <= context[:, None])
    sound = here & ~fault
    chain = torch.cat([here[:, :1], follows & sound[:, :-1]], 1).int().cumprod(1).bool()  # reached
    keep = chain & sound
    kept = keep.sum(1, dtype=torch.int32)
    failed = (chain & fault).any(1)

    tokens = torch.where(keep, pick, 0)
    last = (kept - 1).clamp(min=0)[:, None].long()
    emitted = kept > 0
    stopped = emitted & stop.gather(1, last)[:, 0]
    full = emitted & ((produced + kept == max_new) | (positions + kept + 1 == context))
    finish = torch.full_like(kept, RUNNING)
    for code, holds in ((ERROR, failed), (LENGTH, full), (STOP, stopped)):  # the later one wins
        finish = torch.where(holds, code, finish)
    return Accepted(kept, tokens.int(), torch.where(emitted, tokens.gather(1, last)[:, 0], anchors).int(), finish.int())


accept_prefix = accept_prefix_torch
