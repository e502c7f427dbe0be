"""What the plain-torch twins read of a window on the host. A Triton kernel finds the same from the device tables."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor


class Group(NamedTuple):
    """The first `rows` rows of a slot's group that count; `first` is its row in the window."""

    slot: int
    first: int
    rows: int


def host_groups(starts: Tensor, counts: Tensor | None = None) -> tuple[Group, ...]:
    """The groups that count at least one row. starts [slots + 1] as from `pack_window`; counts [slots]: None = all rows."""
    bounds = starts.tolist()
    sizes = [stop - start for start, stop in pairwise(bounds)]
    if counts is not None:
        sizes = [min(size, count) for size, count in zip(sizes, counts.tolist(), strict=True)]
    return tuple(Group(slot, bounds[slot], size) for slot, size in enumerate(sizes) if size > 0)


class Tiles(NamedTuple):
    """Groups cut into tiles of a fixed number of query rows, so that every product has the same form."""

    rows: Tensor  # [R] long, the window rows that count
    row_slots: Tensor  # [R] long
    slots: Tensor  # [T] long, of each tile
    table: Tensor  # [T, tile] long, window rows; the tile's first one where it is not full
    owner: Tensor  # [R] long, tile of each row that counts
    place: Tensor  # [R] long, its row in the tile


@lru_cache(maxsize=256)
def tiles(groups: tuple[Group, ...], tile: int, device: torch.device) -> Tiles:
    rows: list[int] = []
    row_slots: list[int] = []
    slots: list[int] = []
    table: list[list[int]] = []
    owner: list[int] = []
    place: list[int] = []
    for slot, first, count in groups:
        for start in range(0, count, tile):
            here = list(range(first + start, first + min(start + tile, count)))
            rows += here
            row_slots += [slot] * len(here)
            owner += [len(slots)] * len(here)
            place += range(len(here))
            slots.append(slot)
            table.append(here + [here[0]] * (tile - len(here)))
    return Tiles(*(torch.tensor(each, dtype=torch.long, device=device) for each in (rows, row_slots, slots, table, owner, place)))


class Depths(NamedTuple):
    """Rows ordered by their place in the group, the largest group first: the groups of one depth are a prefix of those before."""

    slots: Tensor  # [G] long
    rows: Tensor  # [R] long, the window rows of depth 0, then 1, ...
    sizes: tuple[int, ...]  # groups at each depth
    ordered: bool  # rows are 0, 1, 2, ... already


@lru_cache(maxsize=256)
def depths(groups: tuple[Group, ...], device: torch.device) -> Depths:
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
