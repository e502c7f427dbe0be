"""Pack: the slots' anchors and drafts become the rows of a window."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require


class Packed(NamedTuple):
    """Rows are laid out in ascending slot order. Rows from starts[-1] on are padding: only that count marks them."""

    ids: Tensor  # [bucket] int32 token of the row; 0 in padding
    positions: Tensor  # [bucket] int32 position of the row; 0 in padding
    slots: Tensor  # [bucket] int32 slot of the row; 0 in padding
    group_index: Tensor  # [bucket] int32 place in its group, 0 = anchor; 0 in padding
    starts: Tensor  # [slots + 1] int32 first row of each slot's group; starts[-1] = real rows


def pack_window_torch(anchors: Tensor, drafts: Tensor, positions: Tensor, group_rows: Tensor, *, bucket: int) -> Packed:
    """anchors, positions, group_rows: [slots] int32; drafts: [slots, depth] int32; group_rows 0 = not in this window.

    A group's row 0 is the anchor at the slot's position, row i > 0 its draft i - 1 at position + i. The groups' rows must
    fit the bucket and group_rows <= depth + 1: device data, so the caller's duty (a planner's plan always does).
    """
    require("anchors", anchors, shape=[None], dtypes=[torch.int32])
    slots = anchors.shape[0]
    require("drafts", drafts, shape=[slots, None], dtypes=[torch.int32], like=anchors)
    require("positions", positions, shape=[slots], dtypes=[torch.int32], like=anchors)
    require("group_rows", group_rows, shape=[slots], dtypes=[torch.int32], like=anchors)
    if bucket < 1:
        raise ValueError(f"bucket is {bucket}, expected at least 1")
    starts = torch.zeros(slots + 1, dtype=torch.int32, device=anchors.device)
    if slots == 0:
        empty = torch.zeros(bucket, dtype=torch.int32, device=anchors.device)
        return Packed(empty, empty.clone(), empty.clone(), empty.clone(), starts)
    ends = group_rows.cumsum(0, dtype=torch.int32)
    starts[1:] = ends
    row = torch.arange(bucket, dtype=torch.int32, device=anchors.device)
    real = row < ends[-1]
    owner = torch.searchsorted(ends, row, right=True).clamp(max=slots - 1)  # [bucket], the first slot that ends after the row
    index = row - starts[owner]
    tokens = torch.cat([anchors[:, None], drafts], 1)  # [slots, 1 + depth]
    ids = tokens[owner, index.clamp(0, tokens.shape[1] - 1).long()]
    zero = torch.zeros_like(row)
    return Packed(
        torch.where(real, ids, zero),
        torch.where(real, positions[owner] + index, zero),
        torch.where(real, owner.int(), zero),
        torch.where(real, index, zero),
        starts,
    )


pack_window = pack_window_torch
