"""How a planned window is run: eagerly, or through captured graphs under a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mtp.executor import Work
from mtp.layouts.cache import Halves, LayoutCache, LayoutStats, timed_halves
from mtp.layouts.keys import KEYS, LayoutKey, layout_key
from mtp.windows import Group


class Layout(Protocol):
    """How a planned window is run: eagerly, or through captured graphs under a key."""

    @property
    def key(self) -> str: ...

    def run(self, groups: Sequence[Group], work: Work) -> Halves: ...

    def stats(self) -> LayoutStats: ...


class Eager:
    """`layout=off`."""

    key = "off"

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock

    def run(self, groups: Sequence[Group], work: Work) -> Halves:
        return timed_halves(work.verify, work.commit, self._clock)

    def stats(self) -> LayoutStats:
        return LayoutStats()


class Keyed:
    """Windows with the same layout key, and the same baked-in values, share a pair of graphs, until an epoch ends."""

    def __init__(self, key: LayoutKey, cache: LayoutCache) -> None:
        if key not in KEYS:
            raise ValueError(f"layout key is {key!r}, expected one of {', '.join(KEYS)}")
        self.key = key
        self._key: LayoutKey = key
        self._cache = cache
        self._epoch: int | None = None

    def run(self, groups: Sequence[Group], work: Work) -> Halves:
        if work.epoch != self._epoch:
            self._epoch = work.epoch
            self._cache.clear()
        return self._cache.run((layout_key(groups, self._key), work.baked), work)

    def stats(self) -> LayoutStats:
        return self._cache.stats()
