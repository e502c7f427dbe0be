"""Window plans on the device: `rotate_grow` and `static_k`, branch-free over a tile of slots,
and as a literal walk."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from triton_kernels.launch import SLOT_TILE, constant, jit, tl
from triton_kernels.pack import Packed, pack_window_torch
from triton_kernels.state import SlotLimits, SlotState

POLICIES = ("rotate_grow", "static_k")
ROTATE_GROW = constant(POLICIES.index("rotate_grow"))


@jit
def two_sums(x, y):
    """Sums of two tiles of small numbers >= 0 in one reduction: each costs a round through
    shared memory."""
    both = tl.sum(x + (y << 16), 0)
    return both & 65535, both >> 16


@jit
def along_walk(x, slot, start):
    """(inclusive prefix sums of x [SLOT_TILE] in the order of the walk, sum): slots from `start`
    on, then those before it."""
    wraps = slot < start
    total, before = two_sums(x, tl.where(wraps, x, 0))
    return tl.cumsum(x, 0) - before + tl.where(wraps, total, 0), total


@jit
def grow_pairs(able, drafts, rank, slot, start, rows):
    """`rotate_grow`: (group, slots entered). Groups of 2 grow to 4 while pairs of rows are left."""
    smallest = tl.where(able, tl.where(drafts >= 1, 2, 1), 0)
    # never an empty window while a slot can run
    smallest = tl.where(rank == 1, tl.minimum(smallest, rows), smallest)
    needed, _ = along_walk(smallest, slot, start)
    enters = able & (needed <= rows)
    group = tl.where(enters, smallest, 0)
    used, entered = two_sums(group, enters.to(tl.int32))
    pair = tl.where((group == 2) & (drafts >= 3), 2, 0)
    needed, _ = along_walk(pair, slot, start)
    return group + tl.where(needed <= rows - used, pair, 0), entered


@jit
def grow_to(able, drafts, rank, slot, start, rows, DRAFTS: tl.constexpr, SIZES: tl.constexpr):
    """`static_k`: (group, slots entered). SIZES: bit n stands for groups of n rows."""
    enters = able & (rank <= rows)
    entered = tl.sum(enters.to(tl.int32), 0)
    left = rows - entered
    wanted = tl.zeros_like(slot)
    for size in tl.static_range(2, DRAFTS + 2):
        if (SIZES >> size) & 1:
            wanted = tl.where(enters & (drafts >= size - 1), size - 1, wanted)
    given = tl.zeros_like(slot)
    # First come first served. A refusal of n rows refuses all later wishes of n or more, so a pass
    # settles at least one size.
    for size in tl.static_range(2, DRAFTS + 2):
        if (SIZES >> size) & 1:
            needed, _ = along_walk(wanted, slot, start)
            fits = needed <= left
            refused = tl.min(tl.where((wanted > 0) & ~fits, rank, SLOT_TILE + 1), 0)
            now = tl.where(fits, wanted, 0)
            granted, too_many = two_sums(now, tl.where(rank == refused, wanted, 0))
            given += now
            left -= granted
            wanted = tl.where(fits | (wanted >= too_many), 0, wanted)
    return tl.where(enters, 1 + given, 0), entered


@jit
def plan_groups(
    able, drafts, slot, start, rows, POLICY: tl.constexpr, DRAFTS: tl.constexpr, SIZES: tl.constexpr
):
    """(group [SLOT_TILE], next start): rows of every slot in the next window, and where its
    successor's rotation begins.

    able: the slot can take part; drafts: it may verify, before the policy's own limit; start: a
    slot id.
    """
    rank, walkers = along_walk(able.to(tl.int32), slot, start)
    rank = tl.where(able, rank, 0)  # 1 is the walk's first
    if POLICY == ROTATE_GROW:
        group, entered = grow_pairs(able, drafts, rank, slot, start, rows)
    else:
        group, entered = grow_to(able, drafts, rank, slot, start, rows, DRAFTS, SIZES)
    follower = tl.where(entered < walkers, entered + 1, tl.minimum(walkers, 2))
    following = tl.sum(tl.where(able & (rank == follower), slot, 0), 0)
    return group, tl.where(walkers > 0, following, start)


def plan_groups_torch(
    able: Sequence[bool],
    drafts: Sequence[int],
    start: int,
    rows: int,
    policy: str,
    k: int,
    sizes: Sequence[int],
) -> tuple[list[int], int]:
    """`plan_groups` on lists, as a literal walk."""
    slots = range(len(able))
    walk = [slot for slot in (*slots[start:], *slots[:start]) if able[slot]]
    group = [0] * len(able)
    left, entered = rows, 0
    for slot in walk:
        smallest = 2 if policy == "rotate_grow" and drafts[slot] >= 1 else 1
        if entered == 0:
            smallest = min(smallest, rows)
        if smallest > left:
            break
        group[slot], left, entered = smallest, left - smallest, entered + 1
    for slot in walk[:entered]:
        if policy == "rotate_grow":
            largest = 4 if group[slot] == 2 and drafts[slot] >= 3 else group[slot]
        else:
            largest = max((size for size in sizes if size <= min(drafts[slot], k) + 1), default=1)
        if largest - group[slot] <= left:
            left -= largest - group[slot]
            group[slot] = largest
    if not walk:
        return group, start
    return group, walk[entered] if entered < len(walk) else walk[1 % len(walk)]


def plan_window_torch(
    state: SlotState,
    limits: SlotLimits,
    window: Packed,
    rows: int,
    policy: str,
    k: int,
    sizes: Sequence[int],
) -> None:
    """The next window is planned and packed; `window` and `state.start` change in place."""
    limit = torch.minimum(limits.max_new - state.produced, limits.context - state.positions - 1)
    able = (state.live > 0) & (limit >= 1)
    usable = torch.minimum(torch.minimum(state.held, limits.allowed), limit - 1)
    groups, start = plan_groups_torch(
        able.tolist(), usable.tolist(), int(state.start), rows, policy, k, sizes
    )
    group_rows = torch.tensor(groups, dtype=torch.int32, device=usable.device)
    packed = pack_window_torch(
        state.anchors, state.drafts, state.positions, group_rows, bucket=window.ids.shape[0]
    )
    state.start.fill_(start)
    for place, column in zip(window, packed, strict=True):
        place.copy_(column)
