"""What the plain-torch twins read of a window on the host. A Triton kernel finds the same from
the device tables."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class HostGroup(NamedTuple):
    """The first `rows` rows of a slot's group that count; `first` is its row in the window."""

    slot: int
    first: int
    rows: int


def host_groups(starts: Tensor, counts: Tensor | None = None) -> tuple[HostGroup, ...]:
    """The groups that count at least one row. starts [slots + 1] as from `pack_window`; counts
    [slots]: None = all rows."""
    bounds = starts.tolist()
    sizes = [stop - start for start, stop in pairwise(bounds)]
    if counts is not None:
        sizes = [min(size, count) for size, count in zip(sizes, counts.tolist(), strict=True)]
    return tuple(HostGroup(slot, bounds[slot], size) for slot, size in enumerate(sizes) if size > 0)


class Tile(NamedTuple):
    """The t-th tile of query rows of the first slots of a batch; every tile has the same number
    of rows."""

    table: Tensor  # [T, tile] long, window rows; the tile's first one where it is not full
    rows: Tensor  # [R] long, the window rows that it holds
    places: Tensor  # [R] long, where they are among T * tile


class Batch(NamedTuple):
    """Groups whose slots need the same number of blocks of their caches."""

    slots: tuple[int, ...]  # those with the most tiles first
    blocks: int
    tiles: tuple[Tile, ...]


@lru_cache(maxsize=256)
def batches(
    groups: tuple[HostGroup, ...], blocks: tuple[int, ...], tile: int, device: torch.device
) -> tuple[Batch, ...]:
    """blocks: of each group's slot. No slot is read further than it is long, and short slots are
    not read one by one."""
    found = []
    for count in sorted(set(blocks)):
        members = sorted(
            (group for group, need in zip(groups, blocks, strict=True) if need == count),
            key=lambda group: -group.rows,
        )
        tiles = []
        for start in range(0, members[0].rows, tile):
            held = [
                list(range(g.first + start, g.first + min(start + tile, g.rows)))
                for g in members
                if g.rows > start
            ]
            table = [rows + [rows[0]] * (tile - len(rows)) for rows in held]
            places = [tile * i + j for i, rows in enumerate(held) for j in range(len(rows))]
            tensors = (table, [row for rows in held for row in rows], places)
            tiles.append(
                Tile(*(torch.tensor(each, dtype=torch.long, device=device) for each in tensors))
            )
        found.append(Batch(tuple(group.slot for group in members), count, tuple(tiles)))
    return tuple(found)


class Depths(NamedTuple):
    """Rows ordered by their place in the group, the largest group first: the groups of one depth
    are a prefix of those before."""

    slots: Tensor  # [G] long
    rows: Tensor  # [R] long, the window rows of depth 0, then 1, ...
    sizes: tuple[int, ...]  # groups at each depth
    ordered: bool  # rows are 0, 1, 2, ... already


@lru_cache(maxsize=256)
def depths(groups: tuple[HostGroup, ...], device: torch.device) -> Depths:
    by_size = sorted(groups, key=lambda group: -group.rows)
    deepest = by_size[0].rows if by_size else 0
    rows, sizes = [], []
    for depth in range(deepest):
        here = [group.first + depth for group in by_size if group.rows > depth]
        rows += here
        sizes.append(len(here))
    slots = [group.slot for group in by_size]
    return Depths(
        torch.tensor(slots, dtype=torch.long, device=device),
        torch.tensor(rows, dtype=torch.long, device=device),
        tuple(sizes),
        rows == list(range(len(rows))),
    )
