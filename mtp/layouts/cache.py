"""A bounded LRU of captured graph pairs. Pure Python: graphs come from a backend, windows from
the executor."""

from __future__ import annotations

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Protocol

from mtp.errors import print_error
from mtp.executor import Path, PhaseTimes
from mtp.layouts.layout import LayoutStats, timed_phases
from mtp.profiling import profiled

RETRIES = 2  # failed captures of one key after which it stays eager


class Graph(Protocol):
    def replay(self) -> None: ...

    def reset(self) -> None:
        """Free what it holds; it is never replayed again."""
        ...


class GraphBackend(Protocol):
    def warm(self, work: Callable[[], None]) -> None:
        """Run `work` once with nothing kept, so that nothing is loaded, compiled or allocated
        for the first time in a capture."""
        ...

    def capture(self, work: Callable[[], None]) -> Graph:
        """Captured *and* instantiated, or an exception and nothing left; MemoryError when memory
        ran out. Executes nothing."""
        ...

    def pool_bytes(self) -> int:
        """What the graphs hold now."""
        ...


class WindowPhases(Protocol):
    """The two phases of a window. `verify` may run any number of times; `commit` exactly once
    with its kept counts."""

    def verify(self) -> None: ...

    def commit(self) -> None: ...


@dataclass(frozen=True)
class _Pair:
    verify: Graph
    commit: Graph

    @profiled("verify graph")
    def replay_verify(self) -> None:
        self.verify.replay()

    @profiled("commit graph")
    def replay_commit(self) -> None:
        self.commit.replay()

    def reset(self) -> None:
        self.verify.reset()
        self.commit.reset()


class LayoutCache:
    """Replays a window's pair of graphs, captures it, or runs the window eagerly: always the same
    tokens."""

    def __init__(
        self,
        capacity: int,  # most pairs held
        backend: GraphBackend,
        *,
        capture_on: int = 1,  # a key is captured at its n-th sight
        # captures without a hit in between after which nothing is captured any more; None: never
        give_up_after: int | None = None,
        # seconds, once the work before it is done
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        for name, value in (
            ("capacity", capacity),
            ("capture_on", capture_on),
            ("give_up_after", give_up_after),
        ):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")
        self._capacity, self._backend = capacity, backend
        self._capture_on, self._give_up_after, self._clock = capture_on, give_up_after, clock
        self._pairs: OrderedDict[Hashable, _Pair] = OrderedDict()  # least recently used first
        self._sights: Counter[Hashable] = Counter()
        self._failed: Counter[Hashable] = Counter()
        self._counts: Counter[str] = Counter()
        self._capture_s = 0.0
        self._unused = 0  # captures since the last hit
        self._given_up = False

    def __len__(self) -> int:
        return len(self._pairs)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._pairs

    def run(self, key: Hashable, window: WindowPhases) -> PhaseTimes:
        """Verify and commit the window. key: everything that is constant in its graphs."""
        captured_before = self._capture_s
        path: Path = "eager"
        if key in self._pairs:
            path = "replayed"
            self._counts["hits"] += 1
            self._unused = 0
            self._pairs.move_to_end(key)
        else:
            self._counts["misses"] += 1
            self._sights[key] += 1
            if self._worth_capturing(key):
                path = "capturing"
                self._capture(key, window)
        pair = self._pairs.get(key)
        verify, commit = (
            (window.verify, window.commit)
            if pair is None
            else (pair.replay_verify, pair.replay_commit)
        )
        phases = timed_phases(verify, commit, self._clock)
        return replace(phases, capture=self._capture_s - captured_before, path=path)

    def clear(self) -> None:
        """Drop every pair, and forget which keys failed: a constant of all of them has changed."""
        while self._pairs:
            self._pairs.popitem()[1].reset()
        self._failed.clear()

    def stats(self) -> LayoutStats:
        return LayoutStats(
            capture_s=self._capture_s,
            bytes=self._backend.pool_bytes(),
            given_up=self._given_up,
            **self._counts,
        )

    def _worth_capturing(self, key: Hashable) -> bool:
        return (
            not self._given_up
            and self._sights[key] >= self._capture_on
            and self._failed[key] < RETRIES
        )

    @profiled("capture")
    def _capture(self, key: Hashable, window: WindowPhases) -> None:
        """A pair, or nothing at all. Room is made first, so that there are never more than
        `capacity` pairs."""
        while len(self._pairs) >= self._capacity:
            self._evict_oldest()
        began = self._clock()
        phases: list[Graph] = []
        try:
            for work in (window.verify, window.commit):
                phases.append(self._capture_phase(work))
        except Exception as fault:
            for graph in phases:
                graph.reset()
            self._failed[key] += 1
            self._counts["failures"] += 1
            print_error(
                f"capture of layout {key} failed ({type(fault).__name__}: {fault}); the window "
                "runs eagerly"
            )
            return
        finally:
            self._capture_s += self._clock() - began
        self._pairs[key] = _Pair(*phases)
        self._counts["captures"] += 1
        self._unused += 1
        if self._give_up_after is not None and self._unused >= self._give_up_after:
            self._given_up = True
            logging.getLogger(__name__).warning(
                "layout cache: %d captures without a hit, no more captures", self._unused
            )

    def _capture_phase(self, work: Callable[[], None]) -> Graph:
        """Out of memory evicts the others, oldest first, and tries again."""
        while True:
            try:
                self._backend.warm(work)
                return self._backend.capture(work)
            except MemoryError:
                if not self._pairs:
                    raise
                self._evict_oldest()

    def _evict_oldest(self) -> None:
        self._pairs.popitem(last=False)[1].reset()
        self._counts["evictions"] += 1
