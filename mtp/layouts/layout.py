"""How a planned window is run. Here: eagerly, `layout=off`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtp.executor import PhaseTimes, StagedWindow
from mtp.windows import Group


@dataclass(frozen=True)
class LayoutStats:
    hits: int = 0
    misses: int = 0  # windows whose key had no pair
    captures: int = 0  # pairs captured
    evictions: int = 0
    failures: int = 0  # captures that failed
    capture_s: float = 0.0
    bytes: int = 0  # held now
    given_up: bool = False


class Layout(Protocol):
    """How a planned window is run: eagerly, or through captured graphs under a key."""

    @property
    def key(self) -> str: ...

    def run(self, groups: Sequence[Group], work: StagedWindow) -> PhaseTimes: ...

    def stats(self) -> LayoutStats: ...


class Eager:
    """`layout=off`."""

    key = "off"

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def run(self, groups: Sequence[Group], work: StagedWindow) -> PhaseTimes:
        return timed_phases(work.verify, work.commit, self._clock)

    def stats(self) -> LayoutStats:
        return LayoutStats()


def timed_phases(
    verify: Callable[[], None], commit: Callable[[], None], clock: Callable[[], float]
) -> PhaseTimes:
    """Run both phases of a window."""
    began = clock()
    verify()
    verified = clock()
    commit()
    return PhaseTimes(verified - began, clock() - verified)
