"""How a planned window is run: eagerly, or through captured graphs under a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mtp.executor import StagedWindow
from mtp.layouts.cache import LayoutCache, LayoutStats, PhaseTimes, timed_phases
from mtp.layouts.keys import KEYS, LayoutKey, layout_key
from mtp.windows import Group


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


class Keyed:
    """Windows with the same layout key, and the same graph constants, share a pair of graphs, until a graph epoch ends."""

    def __init__(self, key: LayoutKey, cache: LayoutCache) -> None:
        if key not in KEYS:
            raise ValueError(f"layout key is {key!r}, expected one of {', '.join(KEYS)}")
        self.key = key
        self._key: LayoutKey = key
        self._cache = cache
        self._graph_epoch: int | None = None

    def run(self, groups: Sequence[Group], work: StagedWindow) -> PhaseTimes:
        if work.graph_epoch != self._graph_epoch:
            self._graph_epoch = work.graph_epoch
            self._cache.clear()
        return self._cache.run((layout_key(groups, self._key), work.graph_constants), work)

    def stats(self) -> LayoutStats:
        return self._cache.stats()
