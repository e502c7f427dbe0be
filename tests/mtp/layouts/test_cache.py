"""The LRU of graph pairs against a small reference model; fake graphs that know what they may
touch."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.layouts import Keyed, LayoutCache
from mtp.windows import Group


class FakeGraph:
    def __init__(self, backend, work):
        self.backend, self.work, self.alive = backend, work, True
        backend.live += 1
        backend.peak = max(backend.peak, backend.live)

    def replay(self):
        assert self.alive, "replay of a graph that was dropped"
        self.work()

    def reset(self):
        assert self.alive, "dropped twice"
        self.alive = False
        self.backend.live -= 1


class FakeBackend:
    """plan: {n-th capture call: exception}. Captures call nothing."""

    def __init__(self, plan=None):
        self.plan, self.calls, self.live, self.peak = plan or {}, 0, 0, 0

    def warm(self, work):
        pass

    def capture(self, work):
        self.calls += 1
        if self.calls in self.plan:
            raise self.plan[self.calls]
        return FakeGraph(self, work)

    def pool_bytes(self):
        return 100 * self.live


class StagedWindow:
    """Counts its phases: a window is verified before it is committed, and committed once."""

    def __init__(self):
        self.verified = self.committed = 0

    def verify(self):
        self.verified += 1

    def commit(self):
        assert self.verified
        self.committed += 1


SHARED = StagedWindow()  # replays run the phases of the window a pair was captured with


def run(cache, keys):
    for key in keys:
        before = SHARED.committed
        cache.run(key, SHARED)
        assert SHARED.committed == before + 1


def test_ABAC_at_capacity_2_drops_the_pair_of_B():
    backend = FakeBackend()
    cache = LayoutCache(2, backend)
    run(cache, "ABAC")
    assert "A" in cache
    assert "C" in cache
    assert "B" not in cache
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.captures, stats.evictions) == (1, 3, 3, 1)
    assert (backend.live, stats.bytes) == (4, 400)


def test_a_hit_at_the_limit_evicts_nothing():
    cache = LayoutCache(2, FakeBackend())
    run(cache, "ABABAB")
    assert cache.stats().evictions == 0
    assert len(cache) == 2


def test_K03_a_failed_second_half_leaves_nothing_and_retries_are_bounded(capfd):
    backend = FakeBackend({n: RuntimeError("boom") for n in (2, 4)})
    cache = LayoutCache(4, backend)
    run(cache, "XXX")
    assert (len(cache), backend.live) == (0, 0)
    assert cache.stats().failures == 2  # the third window did not try
    run(cache, "Y")
    assert "Y" in cache
    out, err = capfd.readouterr()
    assert out.count("ERR ") == err.count("ERR ") == 2
    assert cache.stats().captures == 1


def test_out_of_memory_evicts_others_oldest_first_and_never_itself():
    backend = FakeBackend({6: MemoryError(), 7: MemoryError()})
    cache = LayoutCache(4, backend)
    run(cache, "ABC")
    assert "C" in cache
    assert len(cache) == 1
    assert cache.stats().evictions == 2
    assert cache.stats().failures == 0


def test_out_of_memory_with_nothing_left_runs_eagerly():
    backend = FakeBackend({n: MemoryError() for n in range(4, 99)})
    cache = LayoutCache(4, backend)
    run(cache, "ABBBB")
    assert (len(cache), backend.live) == (0, 0)
    assert cache.stats().failures == 2


def test_K07_a_thousand_layouts_leave_at_most_capacity_pairs_and_flat_memory():
    backend = FakeBackend()
    cache = LayoutCache(32, backend)
    run(cache, range(1000))
    stats = cache.stats()
    assert (len(cache), stats.captures, stats.evictions) == (32, 1000, 968)
    assert backend.peak == 64  # two graphs a pair, evicted before the next is captured
    assert stats.bytes == 6400


def test_a_cycle_of_33_layouts_through_32_gives_up_and_says_so(caplog):
    cache = LayoutCache(32, FakeBackend(), give_up_after=128)
    run(cache, [n % 33 for n in range(1000)])
    assert cache.stats().captures == 128
    assert cache.stats().given_up
    assert sum("no more captures" in record.message for record in caplog.records) == 1


def test_a_key_is_captured_at_its_nth_sight():
    cache = LayoutCache(4, FakeBackend(), capture_on=3)
    run(cache, "AABAA")
    stats = cache.stats()
    assert (stats.captures, stats.hits, stats.misses) == (1, 1, 4)


def test_clear_drops_every_pair():
    backend = FakeBackend()
    cache = LayoutCache(4, backend)
    run(cache, "AB")
    cache.clear()
    assert (len(cache), backend.live) == (0, 0)
    run(cache, "A")
    assert cache.stats().captures == 3


def test_clear_forgets_failures():
    cache = LayoutCache(4, FakeBackend({n: RuntimeError("boom") for n in (1, 2)}))
    run(cache, "XXX")
    assert "X" not in cache
    cache.clear()
    run(cache, "X")
    assert "X" in cache


def test_another_epoch_empties_the_cache():
    class Epoch(StagedWindow):
        graph_constants = None

        def __init__(self, graph_epoch):
            super().__init__()
            self.graph_epoch = graph_epoch

    backend = FakeBackend()
    cache = LayoutCache(4, backend)
    layout = Keyed("slots", cache)
    for graph_epoch, slot in ((0, 0), (0, 1), (0, 0), (1, 0), (1, 0)):
        layout.run([Group(slot, 1)], Epoch(graph_epoch))
    stats = cache.stats()
    assert (stats.hits, stats.captures, len(cache), backend.live) == (2, 3, 1, 2)


def test_a_window_says_how_it_ran():
    cache = LayoutCache(4, FakeBackend({3: RuntimeError("boom")}), capture_on=2)
    assert [cache.run(key, StagedWindow()).path for key in "AAA"] == [
        "eager",
        "capturing",
        "replayed",
    ]
    assert [cache.run(key, StagedWindow()).path for key in "BBBB"] == [
        "eager",
        "capturing",
        "capturing",
        "replayed",
    ]


@pytest.mark.parametrize("bad", [{"capacity": 0}, {"capture_on": 0}, {"give_up_after": 0}])
def test_bad_limits_name_the_value(bad):
    arguments = {"capacity": 1, "capture_on": 1, "give_up_after": None} | bad
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is 0, expected at least 1"):
        LayoutCache(
            arguments["capacity"],
            FakeBackend(),
            capture_on=arguments["capture_on"],
            give_up_after=arguments["give_up_after"],
        )


class Reference:
    """What a cache holds and counts, by the rules alone. Only plain failures, at given capture
    calls."""

    def __init__(self, capacity, capture_on, fails):
        self.capacity, self.capture_on, self.fails = capacity, capture_on, fails
        self.held, self.sights, self.failed, self.calls = OrderedDict(), {}, {}, 0
        self.hits = self.misses = self.captures = self.evictions = self.failures = 0

    def run(self, key):
        if key in self.held:
            self.hits += 1
            self.held.move_to_end(key)
            return
        self.misses += 1
        self.sights[key] = self.sights.get(key, 0) + 1
        if self.sights[key] < self.capture_on or self.failed.get(key, 0) >= 2:
            return
        if len(self.held) == self.capacity:
            self.held.popitem(last=False)
            self.evictions += 1
        for _ in range(2):
            self.calls += 1
            if self.calls in self.fails:
                self.failures += 1
                self.failed[key] = self.failed.get(key, 0) + 1
                return
        self.captures += 1
        self.held[key] = True


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 6), max_size=60),
    st.integers(1, 4),
    st.integers(1, 3),
    st.sets(st.integers(1, 60), max_size=12),
)
def test_random_windows_and_failures_equal_the_reference(keys, capacity, capture_on, fails):
    backend = FakeBackend({n: RuntimeError("boom") for n in fails})
    cache = LayoutCache(capacity, backend, capture_on=capture_on)
    reference = Reference(capacity, capture_on, fails)
    for key in keys:
        run(cache, [key])
        reference.run(key)
        assert [key in cache for key in range(7)] == [key in reference.held for key in range(7)]
        assert backend.live == 2 * len(cache)
    stats = cache.stats()
    for name in ("hits", "misses", "captures", "evictions", "failures"):
        assert getattr(stats, name) == getattr(reference, name)
