"""Layouts: what a captured graph is keyed by, and how many there can be. Pure Python."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cache
from math import comb
from typing import Literal

from mtp.windows import Group

LayoutKey = Literal["slots", "ordered", "sorted", "rows"]
KEYS: tuple[LayoutKey, ...] = ("slots", "ordered", "sorted", "rows")


def layout_key(groups: Iterable[Group], key: LayoutKey) -> Hashable:
    """What two windows must have in common to share a graph.

    `slots`: slot ids and lengths (the published key); `ordered`: lengths in slot order; `sorted`:
    the multiset of lengths; `rows`: the row count only.
    """
    ordered = sorted((group.slot, group.rows) for group in groups)
    if key == "slots":
        return tuple(ordered)
    lengths = tuple(rows for _, rows in ordered)
    if key == "ordered":
        return lengths
    if key == "sorted":
        return tuple(sorted(lengths, reverse=True))
    if key == "rows":
        return sum(lengths)
    raise ValueError(f"layout key is {key!r}, expected one of {', '.join(KEYS)}")


def count_layouts(slots: int, rows: int, sizes: Sequence[int], key: LayoutKey) -> int:
    """How many different keys windows of 1 to `rows` rows can have, each of `slots` slots out or
    in with a size of `sizes`."""
    distinct = tuple(sorted({size for size in sizes if size <= rows}))
    if slots < 0 or rows < 1 or any(size < 1 for size in distinct):
        raise ValueError(
            f"slots {slots}, rows {rows}, sizes {list(sizes)}: expected slots >= 0, rows >= 1, "
            "sizes >= 1"
        )

    @cache
    def ordered(groups: int, total: int) -> int:
        """Sequences of `groups` sizes that sum to `total`."""
        if groups == 0:
            return int(total == 0)
        return sum(ordered(groups - 1, total - size) for size in distinct if size <= total)

    @cache
    def multisets(groups: int, total: int, largest: int) -> int:
        """Multisets of `groups` sizes, none above distinct[largest], that sum to `total`."""
        if groups == 0:
            return int(total == 0)
        if largest < 0 or total <= 0:
            return 0
        taken = (
            multisets(groups - 1, total - distinct[largest], largest)
            if distinct[largest] <= total
            else 0
        )
        return taken + multisets(groups, total, largest - 1)

    span = [
        (groups, total) for groups in range(1, min(slots, rows) + 1) for total in range(1, rows + 1)
    ]
    if key == "slots":
        return sum(comb(slots, groups) * ordered(groups, total) for groups, total in span)
    if key == "ordered":
        return sum(ordered(groups, total) for groups, total in span)
    if key == "sorted":
        return sum(multisets(groups, total, len(distinct) - 1) for groups, total in span)
    if key == "rows":
        return len({total for groups, total in span if ordered(groups, total)})
    raise ValueError(f"layout key is {key!r}, expected one of {', '.join(KEYS)}")
