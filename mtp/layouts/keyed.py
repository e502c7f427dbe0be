"""Windows through captured graphs under a key."""

from __future__ import annotations

from collections.abc import Sequence

from mtp.executor import PhaseTimes, StagedWindow
from mtp.layouts.cache import LayoutCache
from mtp.layouts.keys import KEYS, LayoutKey, layout_key
from mtp.layouts.layout import LayoutStats
from mtp.windows import Group


class Keyed:
    """Windows with the same layout key, and the same graph constants, share a pair of graphs,
    until a graph epoch ends."""

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
