"""The rules of grants, as functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence


def grant_expired(rounds_in_grant: float, budget: float, backlog_len: int) -> bool:
    """Whether a grant ends after a round: somebody waits, and the budget (0: endless) is used
    up."""
    return backlog_len > 0 and budget > 0 and rounds_in_grant >= budget


def backlog_admits(backlog_len: int, budget: float, backlog: int = 2) -> bool:
    """Whether one more may wait. With budget 0 grants never end, so nobody waits."""
    return budget > 0 and backlog_len < backlog


def next_grant_index(entries: Sequence[tuple[int, int]], skip_cap: int = 2) -> int | None:
    """Whose turn it is among (priority, skips) in the order of the ring; None: nobody's.

    The most-skipped of those skipped `skip_cap` times or more, the earliest of equals; else the
    highest priority, first come first served. skip_cap 0: priority alone.
    """
    if not entries:
        return None
    overdue = most_skipped([skips for _, skips in entries], skip_cap)
    return highest([priority for priority, _ in entries]) if overdue is None else overdue


def most_skipped(skips: Sequence[int], skip_cap: int) -> int | None:
    """The place of the most-skipped entry, the earliest of equals, where it was skipped skip_cap
    (>= 1) times; else None."""
    place = highest(skips)
    return place if 1 <= skip_cap <= skips[place] else None


def highest(values: Sequence[float]) -> int:
    """The place of the highest value, the earliest of equals."""
    return max(range(len(values)), key=lambda place: (values[place], -place))
