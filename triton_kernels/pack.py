"""Pack: the slots' anchors and drafts become the rows of a window."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.launch import (
    MOST_ROWS,
    MOST_SLOTS,
    ROW_TILE,
    SLOT_TILE,
    jit,
    kernel,
    operation,
    power_of_two,
    tl,
)


class Packed(NamedTuple):
    """Rows are laid out in ascending slot order. Rows from starts[-1] on are padding: only that
    count marks them."""

    ids: Tensor  # [bucket] int32 token of the row; 0 in padding
    positions: Tensor  # [bucket] int32 position of the row; 0 in padding
    slots: Tensor  # [bucket] int32 slot of the row; 0 in padding
    group_index: Tensor  # [bucket] int32 place in its group, 0 = anchor; 0 in padding
    starts: Tensor  # [slots + 1] int32 first row of each slot's group; starts[-1] = real rows


@jit
def store_window(
    ids_ptr,
    positions_ptr,
    slots_ptr,
    index_ptr,
    starts_ptr,
    slot,
    slots,
    bucket,
    group,
    position,
    tokens,
    GROUP_TILE: tl.constexpr,
):
    """Rows of a window from its groups. Every address is written once: real rows by their slots,
    padding by the rest.

    slot, group, position: [SLOT_TILE], group 0 from `slots` on; tokens: [SLOT_TILE, GROUP_TILE],
    anchor first.
    """
    first = tl.cumsum(group, 0) - group
    total = tl.sum(group, 0)
    tl.store(starts_ptr + slot, first, mask=slot < slots)
    tl.store(starts_ptr + slots, total)
    place = tl.arange(0, GROUP_TILE)[None]
    row = first[:, None] + place
    real = (place < group[:, None]) & (row < bucket)
    tl.store(ids_ptr + row, tokens, mask=real)
    tl.store(positions_ptr + row, position[:, None] + place, mask=real)
    tl.store(slots_ptr + row, slot[:, None] + tl.zeros_like(place), mask=real)
    tl.store(index_ptr + row, tl.zeros_like(slot)[:, None] + place, mask=real)
    row = tl.arange(0, ROW_TILE)
    padding = (row >= total) & (row < bucket)
    zero = tl.zeros_like(row)
    tl.store(ids_ptr + row, zero, mask=padding)
    tl.store(positions_ptr + row, zero, mask=padding)
    tl.store(slots_ptr + row, zero, mask=padding)
    tl.store(index_ptr + row, zero, mask=padding)


@jit
def load_tokens(anchors_ptr, drafts_ptr, slot, slots, depth, GROUP_TILE: tl.constexpr):
    """[SLOT_TILE, GROUP_TILE] tokens of every slot's largest group: its anchor, then its drafts."""
    place = tl.arange(0, GROUP_TILE)[None]
    known = (slot < slots)[:, None]
    anchor = tl.load(anchors_ptr + slot, mask=slot < slots, other=0)
    drafts = tl.load(
        drafts_ptr + slot[:, None] * depth + (place - 1),
        mask=known & (place > 0) & (place <= depth),
        other=0,
    )
    return tl.where(place == 0, anchor[:, None], drafts)


@kernel
def pack_window_kernel(
    anchors_ptr,
    drafts_ptr,
    positions_ptr,
    group_ptr,
    slots,
    depth,
    bucket,
    ids_ptr,
    rows_positions_ptr,
    slots_ptr,
    index_ptr,
    starts_ptr,
    GROUP_TILE: tl.constexpr,
):
    """One program of one warp packs the whole window."""
    slot = tl.arange(0, SLOT_TILE)
    group = tl.load(group_ptr + slot, mask=slot < slots, other=0)
    position = tl.load(positions_ptr + slot, mask=slot < slots, other=0)
    tokens = load_tokens(anchors_ptr, drafts_ptr, slot, slots, depth, GROUP_TILE)
    store_window(
        ids_ptr,
        rows_positions_ptr,
        slots_ptr,
        index_ptr,
        starts_ptr,
        slot,
        slots,
        bucket,
        group,
        position,
        tokens,
        GROUP_TILE,
    )


def _launch(
    anchors: Tensor, drafts: Tensor, positions: Tensor, group_rows: Tensor, bucket: int
) -> tuple[Tensor, ...]:
    slots, depth = drafts.shape
    make = torch.empty if slots else torch.zeros  # without a slot nothing is launched
    ids, rows_positions, owners, index = make(
        (4, bucket), dtype=torch.int32, device=anchors.device
    ).unbind()
    starts = make(slots + 1, dtype=torch.int32, device=anchors.device)
    if slots:
        pack_window_kernel[1,](
            anchors,
            drafts,
            positions,
            group_rows,
            slots,
            depth,
            bucket,
            ids,
            rows_positions,
            owners,
            index,
            starts,
            GROUP_TILE=power_of_two(depth + 1),
            num_warps=1,
        )
    return ids, rows_positions, owners, index, starts


def _twin(
    anchors: Tensor, drafts: Tensor, positions: Tensor, group_rows: Tensor, bucket: int
) -> tuple[Tensor, ...]:
    slots = anchors.shape[0]
    starts = torch.zeros(slots + 1, dtype=torch.int32, device=anchors.device)
    if slots == 0:
        empty = torch.zeros(bucket, dtype=torch.int32, device=anchors.device)
        return empty, empty.clone(), empty.clone(), empty.clone(), starts
    ends = group_rows.cumsum(0, dtype=torch.int32)
    starts[1:] = ends
    row = torch.arange(bucket, dtype=torch.int32, device=anchors.device)
    real = row < ends[-1]
    # [bucket], the first slot that ends after the row
    owner = torch.searchsorted(ends, row, right=True).clamp(max=slots - 1)
    index = row - starts[owner]
    tokens = torch.cat([anchors[:, None], drafts], 1)  # [slots, 1 + depth]
    ids = tokens[owner, index.clamp(0, tokens.shape[1] - 1).long()]
    columns = (ids, positions[owner] + index, owner.int(), index)
    return *(torch.where(real, column, 0) for column in columns), starts


_operation = operation(
    "pack_window(Tensor anchors, Tensor drafts, Tensor positions, Tensor group_rows, int bucket)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    cpu=_twin,
    cuda=_launch,
)


def _check(
    anchors: Tensor,
    drafts: Tensor,
    positions: Tensor,
    group_rows: Tensor,
    bucket: int,
    *,
    dense: bool,
) -> None:
    require("anchors", anchors, shape=[None], dtypes=[torch.int32], dense=dense)
    slots = anchors.shape[0]
    require("drafts", drafts, shape=[slots, None], dtypes=[torch.int32], like=anchors, dense=dense)
    require("positions", positions, shape=[slots], dtypes=[torch.int32], like=anchors, dense=dense)
    require(
        "group_rows", group_rows, shape=[slots], dtypes=[torch.int32], like=anchors, dense=dense
    )
    if slots > MOST_SLOTS:
        raise ValueError(f"anchors has {slots} slots, expected at most {MOST_SLOTS}")
    if drafts.shape[1] >= MOST_ROWS:
        raise ValueError(f"drafts has {drafts.shape[1]} columns, expected at most {MOST_ROWS - 1}")
    if not 1 <= bucket <= MOST_ROWS:
        raise ValueError(f"bucket is {bucket}, expected at least 1 and at most {MOST_ROWS}")


def pack_window(
    anchors: Tensor, drafts: Tensor, positions: Tensor, group_rows: Tensor, *, bucket: int
) -> Packed:
    """The rows of a window: anchors, drafts and positions of the slots that take part.

    anchors, positions, group_rows: [slots] int32; drafts: [slots, depth] int32; group_rows 0 = not
    in this window. At most 64 slots, 64 rows. A group's row 0 is the anchor at the slot's position,
    row i > 0 its draft i - 1 at position + i. The groups' rows must fit the bucket and group_rows
    <= depth + 1: device data, so the caller's duty (a planner's plan always does). Raises
    ValueError, one line, for a wrong shape, dtype, device or stride. On a GPU: one launch, none
    without slots.
    """
    _check(anchors, drafts, positions, group_rows, bucket, dense=True)
    return Packed(*_operation(anchors, drafts, positions, group_rows, bucket))


def pack_window_torch(
    anchors: Tensor, drafts: Tensor, positions: Tensor, group_rows: Tensor, *, bucket: int
) -> Packed:
    """`pack_window` in plain torch, for any strides."""
    _check(anchors, drafts, positions, group_rows, bucket, dense=False)
    return Packed(*_twin(anchors, drafts, positions, group_rows, bucket))
