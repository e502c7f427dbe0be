"""Window plans: which slots take part in the next target forward, and with how many rows. Pure
Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_DEPTH = 7  # drafts of a chain


@dataclass(frozen=True)
class SlotView:
    """What a planner sees of one active slot."""

    slot: int
    held: int  # drafts it holds
    room: int  # tokens it may still emit
    position: int  # its anchor's
    context: int  # most prompt + output tokens
    cap: int | None = None  # most rows the grants allow it; None: any number
    survival: tuple[float, ...] = ()  # [j]: probability that its first j + 1 drafts are accepted
    confidence: tuple[float, ...] = ()  # the drafter's own, per held draft
    skips: int = 0  # windows in a row it was left out of
    request: str = ""  # whose slot it is

    @property
    def limit(self) -> int:
        """Most rows this slot may have now; below 1 it takes no part."""
        limit = min(self.room, self.context - self.position - 1)
        return limit if self.cap is None else min(limit, self.cap)

    def usable(self, most: int) -> int:
        """Drafts that may be verified, at most `most`."""
        return max(0, min(self.held, most, self.limit - 1))


@dataclass(frozen=True, order=True)
class Group:
    slot: int
    rows: int


@dataclass(frozen=True)
class WindowPlan:
    groups: tuple[Group, ...]  # in ascending slot order
    next_start: int  # slot id at which the next window's rotation begins

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


def rotation(slots: Sequence[SlotView], start: int) -> list[SlotView]:
    """The slots that may run, from the first id >= start on, wrapping."""
    able = [view for view in slots if view.limit >= 1]
    return [view for view in able if view.slot >= start] + [
        view for view in able if view.slot < start
    ]


def next_start(walk: Sequence[SlotView], entered: int, start: int) -> int:
    """The first slot left out of the walk; when none was, the walk's second slot."""
    if not walk:
        return start
    return walk[entered % len(walk)].slot if entered < len(walk) else walk[1 % len(walk)].slot


def first_left_out(walk: Sequence[SlotView], lengths: Mapping[int, int], start: int) -> int:
    """`next_start` for a plan that may leave out any slot of the walk."""
    return next(
        (view.slot for view in walk if view.slot not in lengths), next_start(walk, len(walk), start)
    )


def rotate_grow(slots: Sequence[SlotView], *, rows: int = 8, start: int = 0) -> WindowPlan:
    """The published window-sharing policy, group sizes 1, 2 and 4.

    Slots enter in rotation with their smallest group (2 rows with a usable draft, else 1) until one
    does not fit; left-over pairs of rows then grow groups from 2 to 4, in rotation, where 3 drafts
    are usable. `slots` ascend by id.
    """
    check_rows(rows)
    walk = rotation(slots, start)
    lengths: dict[int, int] = {}
    left = rows
    for view in walk:
        smallest = 2 if view.usable(3) >= 1 else 1
        if not lengths:
            smallest = min(smallest, rows)  # a window is never empty while a slot can run
        if smallest > left:
            break
        lengths[view.slot] = smallest
        left -= smallest
    for view in walk[: len(lengths)]:
        if left >= 2 and lengths[view.slot] == 2 and view.usable(3) == 3:
            lengths[view.slot] = 4
            left -= 2
    return WindowPlan(groups_of(lengths), next_start(walk, len(lengths), start))


def static_k(
    slots: Sequence[SlotView],
    *,
    k: int,
    rows: int = 8,
    start: int = 0,
    sizes: Sequence[int] = (1, 2, 4),
) -> WindowPlan:
    """Every anchor first, in rotation; then groups grow, in rotation, to k + 1 rows while they
    fit. k = 0 is plain decoding."""
    check_rows(rows)
    if k + 1 not in sizes:
        raise ValueError(
            f"k is {k}, expected one less than a group size: "
            f"{', '.join(str(n - 1) for n in sorted(sizes))}"
        )
    walk = rotation(slots, start)
    entered = walk[:rows]
    lengths = {view.slot: 1 for view in entered}
    left = rows - len(entered)
    for view in entered:
        grown = max((n for n in sizes if n <= view.usable(k) + 1), default=1)
        if grown - 1 <= left:
            lengths[view.slot] = grown
            left -= grown - 1
    return WindowPlan(groups_of(lengths), next_start(walk, len(entered), start))


def rotate_anchors_first(slots: Sequence[SlotView], *, rows: int = 8, start: int = 0) -> WindowPlan:
    """`rotate_grow`, but every anchor gets a row before any draft does: then groups grow to 2,
    then to 4 rows, in rotation."""
    check_rows(rows)
    walk = rotation(slots, start)
    entered = walk[:rows]
    lengths = {view.slot: 1 for view in entered}
    left = rows - len(entered)
    for size in (2, 4):
        for view in entered:
            grow = size - lengths[view.slot]
            if grow <= left and lengths[view.slot] == size // 2 and view.usable(3) >= size - 1:
                lengths[view.slot] = size
                left -= grow
    return WindowPlan(groups_of(lengths), next_start(walk, len(entered), start))


def groups_of(lengths: dict[int, int]) -> tuple[Group, ...]:
    """{slot: rows} as groups in ascending slot order."""
    return tuple(Group(slot, lengths[slot]) for slot in sorted(lengths))


def check_rows(rows: int) -> None:
    if rows < 1:
        raise ValueError(f"rows is {rows}, expected at least 1")
