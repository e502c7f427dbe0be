"""Accept: how many rows of each group are kept, what they emit, and whether the slot ends. The
device's `commit_group`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.launch import (
    MOST_ROWS,
    MOST_SLOTS,
    SLOT_TILE,
    constant,
    jit,
    kernel,
    operation,
    power_of_two,
    tl,
)

RUNNING, STOP, LENGTH, ERROR = range(4)  # values of Accepted.finish
_RUNNING, _STOP, _LENGTH, _ERROR = map(constant, (RUNNING, STOP, LENGTH, ERROR))


class Inputs(NamedTuple):
    """What the operation is given, in the order of every signature here."""

    picks: Tensor  # [rows] int32
    faults: Tensor  # [rows] bool
    ids: Tensor  # [rows] int32
    starts: Tensor  # [slots + 1] int32, as from `pack_window`
    anchors: Tensor  # [slots] int32
    positions: Tensor  # [slots] int32, of the anchor
    produced: Tensor  # [slots] int32, tokens emitted so far
    max_new: Tensor  # [slots] int32
    context: Tensor  # [slots] int32, most prompt + output tokens
    min_new: Tensor  # [slots] int32, a stop id among the first min_new tokens does not end
    stop_ids: Tensor  # [slots, M] int32
    stop_counts: Tensor  # [slots] int32, that count; 0 to ignore stops


INPUTS = Inputs._fields


class Accepted(NamedTuple):
    kept: Tensor  # [slots] int32; 0 for a slot without a group
    tokens: Tensor  # [slots, width] int32; the first kept[slot] of each slot count, the rest is 0
    anchors: (
        Tensor  # [slots] int32; the last emitted token, or the old anchor where nothing was emitted
    )
    finish: Tensor  # [slots] int32; RUNNING, STOP, LENGTH or ERROR


@jit
def keep_prefix(
    pick,
    fault,
    follower,
    group,
    produced,
    max_new,
    position,
    context,
    min_new,
    stop_ids_ptr,
    stop_count,
    most_stops,
    slot,
    GROUP_TILE: tl.constexpr,
):
    """(kept, last pick, finish) [SLOT_TILE] of every slot's group.

    pick, fault, follower (the next row's draft): [SLOT_TILE, GROUP_TILE]; all else [SLOT_TILE].
    """
    place = tl.arange(0, GROUP_TILE)[None]
    here = place < group[:, None]
    stop = pick != pick
    for i in range(tl.max(stop_count, 0)):
        listed = i < stop_count
        stop_id = tl.load(stop_ids_ptr + slot * most_stops + i, mask=listed, other=0)
        stop |= (pick == stop_id[:, None]) & listed[:, None]
    stop &= (produced - min_new)[:, None] + place >= 0
    # the walk goes on to the next row
    more = (pick == follower) & (place + 1 < group[:, None]) & ~stop
    more &= ((max_new - produced)[:, None] > place + 1) & (
        (context - position)[:, None] >= place + 3
    )
    # where the walk ends, doubled: even before an unreached row, odd before a faulty one
    end = tl.where(
        here & ~fault, tl.where(more, 2 * GROUP_TILE, 2 * place + 2), 2 * place + here.to(tl.int32)
    )
    end = tl.min(end, 1)
    kept = end >> 1
    is_last = place == kept[:, None] - 1
    last = tl.sum(tl.where(is_last, pick, 0), 1)
    stopped = tl.sum((is_last & stop).to(tl.int32), 1) > 0
    full = (kept > 0) & ((produced + kept == max_new) | (position + kept + 1 == context))
    finish = tl.where(
        stopped, _STOP, tl.where(full, _LENGTH, tl.where((end & 1) > 0, _ERROR, _RUNNING))
    )
    return kept, last, finish


@kernel
def accept_prefix_kernel(
    picks_ptr,
    faults_ptr,
    ids_ptr,
    starts_ptr,
    anchors_ptr,
    positions_ptr,
    produced_ptr,
    max_new_ptr,
    context_ptr,
    min_new_ptr,
    stop_ids_ptr,
    stop_counts_ptr,
    slots,
    most_stops,
    width,
    kept_ptr,
    tokens_ptr,
    next_ptr,
    finish_ptr,
    GROUP_TILE: tl.constexpr,
):
    """One program of one warp walks every group at once."""
    slot = tl.arange(0, SLOT_TILE)
    known = slot < slots
    first = tl.load(starts_ptr + slot, mask=known, other=0)
    group = tl.load(starts_ptr + slot + 1, mask=known, other=0) - first
    place = tl.arange(0, GROUP_TILE)[None]
    row = first[:, None] + place
    here = place < group[:, None]
    pick = tl.load(picks_ptr + row, mask=here, other=0)
    fault = tl.load(faults_ptr + row, mask=here, other=0) != 0
    follower = tl.load(ids_ptr + row + 1, mask=place + 1 < group[:, None], other=0)
    anchor = tl.load(anchors_ptr + slot, mask=known, other=0)
    kept, last, finish = keep_prefix(
        pick,
        fault,
        follower,
        group,
        tl.load(produced_ptr + slot, mask=known, other=0),
        tl.load(max_new_ptr + slot, mask=known, other=0),
        tl.load(positions_ptr + slot, mask=known, other=0),
        tl.load(context_ptr + slot, mask=known, other=0),
        tl.load(min_new_ptr + slot, mask=known, other=0),
        stop_ids_ptr,
        tl.load(stop_counts_ptr + slot, mask=known, other=0),
        most_stops,
        slot,
        GROUP_TILE,
    )
    tl.store(kept_ptr + slot, kept, mask=known)
    tl.store(next_ptr + slot, tl.where(kept > 0, last, anchor), mask=known)
    tl.store(finish_ptr + slot, finish, mask=known)
    tl.store(
        tokens_ptr + slot[:, None] * width + place,
        tl.where(place < kept[:, None], pick, 0),
        mask=known[:, None] & (place < width),
    )


def _launch(width: int, *given: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = Inputs(*given)
    slots, most_stops = inputs.stop_ids.shape
    kept, following, finish = torch.empty(
        (3, slots), dtype=torch.int32, device=inputs.picks.device
    ).unbind()
    tokens = torch.empty((slots, width), dtype=torch.int32, device=inputs.picks.device)
    if slots:
        shapes = (slots, most_stops, width)
        outputs = (kept, tokens, following, finish)
        tile = power_of_two(width)
        accept_prefix_kernel[1,](*inputs, *shapes, *outputs, GROUP_TILE=tile, num_warps=1)
    return kept, tokens, following, finish


def _twin(width: int, *given: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    picks, faults, ids, starts, anchors, positions, produced, *limits = Inputs(*given)
    max_new, context, min_new, stop_ids, stop_counts = limits
    k = torch.arange(width, dtype=torch.int32, device=picks.device)[None]  # [1, width]
    group = (starts[1:] - starts[:-1])[:, None]  # [slots, 1]
    here = k < group
    row = (starts[:-1, None] + k).clamp(0, picks.shape[0] - 1).long()
    pick, draft, fault = picks[row], ids[row], faults[row]  # [slots, width]
    # [slots, M]
    listed = torch.arange(stop_ids.shape[1], device=picks.device)[None] < stop_counts[:, None]
    stop = ((pick[:, :, None] == stop_ids[:, None]) & listed[:, None]).any(2) & (
        produced[:, None] + k >= min_new[:, None]
    )

    # reached[k]: the walk comes to row k, by an agreeing draft that neither ended the slot nor ran
    # out of room
    follows = (pick[:, :-1] == draft[:, 1:]) & ~stop[:, :-1] & here[:, 1:]
    follows &= (produced[:, None] + k[:, 1:] < max_new[:, None]) & (
        positions[:, None] + k[:, 1:] + 2 <= context[:, None]
    )
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
    return (
        kept,
        tokens.int(),
        torch.where(emitted, tokens.gather(1, last)[:, 0], anchors).int(),
        finish.int(),
    )


_operation = operation(
    f"accept_prefix(int width, {', '.join('Tensor ' + name for name in INPUTS)}) -> (Tensor, "
    "Tensor, Tensor, Tensor)",
    cpu=_twin,
    cuda=_launch,
)


def _check(width: int, inputs: Inputs, *, dense: bool) -> None:
    picks, anchors = inputs.picks, inputs.anchors
    require("picks", picks, shape=[None], dtypes=[torch.int32], dense=dense)
    require("anchors", anchors, shape=[None], dtypes=[torch.int32], like=picks, dense=dense)
    rows, slots = picks.shape[0], anchors.shape[0]
    shapes: dict[str, list[int | None]] = {
        "faults": [rows],
        "ids": [rows],
        "starts": [slots + 1],
        "stop_ids": [slots, None],
    }
    for name, tensor in inputs._asdict().items():
        dtype = torch.bool if name == "faults" else torch.int32
        shape = [rows] if name == "picks" else shapes.get(name, [slots])
        require(name, tensor, shape=shape, dtypes=[dtype], like=picks, dense=dense)
    if slots > MOST_SLOTS:
        raise ValueError(f"anchors has {slots} slots, expected at most {MOST_SLOTS}")
    if not 1 <= width <= MOST_ROWS:
        raise ValueError(f"width is {width}, expected at least 1 and at most {MOST_ROWS}")


def accept_prefix(
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

    Shapes and dtypes: see `Inputs`. width: the most rows of a group. At most 64 slots and groups of
    64 rows.

    Row 0 is kept unless it is faulty. Row k is kept iff pick[k-1] == its draft, pick[k-1] does not
    end the slot, produced + k < max_new, position + k + 2 <= context, and it is not faulty. A
    faulty row that the walk reaches ends the slot with ERROR after the rows before it. Raises
    ValueError, one line, for a wrong shape, dtype, device or stride. On a GPU: one launch, none
    without slots.
    """
    rows, slots = (picks, faults, ids, starts), (anchors, positions, produced)
    inputs = Inputs(*rows, *slots, max_new, context, min_new, stop_ids, stop_counts)
    _check(width, inputs, dense=True)
    return Accepted(*_operation(width, *inputs))


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
    """`accept_prefix` in plain torch, for any strides."""
    rows, slots = (picks, faults, ids, starts), (anchors, positions, produced)
    inputs = Inputs(*rows, *slots, max_new, context, min_new, stop_ids, stop_counts)
    _check(width, inputs, dense=False)
    return Accepted(*_twin(width, *inputs))
