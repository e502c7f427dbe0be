"""A unit of time that is the machine's own: limits in it hold on a slow or busy machine too."""

from __future__ import annotations

from timeit import timeit


def work() -> list[int]:
    """A few microseconds of what host code does: calls, arithmetic, a sort."""
    return sorted((7 * number % 31 for number in range(64)), reverse=True)


def unit_s(repeats: int = 20) -> float:
    """Seconds that `work` takes now, the mean of `repeats`."""
    return timeit(work, number=repeats) / repeats
