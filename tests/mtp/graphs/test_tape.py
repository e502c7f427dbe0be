"""The layout cache on tapes: the same code as on the model, with captures that cost virtual
time."""

from __future__ import annotations

import pytest

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.graphs.tape import TapeGraphs
from mtp.layouts import KEYS, Keyed, LayoutCache
from mtp.policies import RotateGrow
from mtp.request import Request
from tests.support.tapes import LIMITS, expected, random_tape


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("capacity", [1, 32])
def test_tokens_and_windows_do_not_depend_on_the_key_and_captures_take_time(key, capacity):
    requests = {Request(f"r{n}", (1, 2), 30, ignore_stop=True): random_tape(n) for n in range(4)}
    times = {}
    for capture_s in (0.0, 1.0):
        executor = TapeExecutor(
            {request.id: tape for request, tape in requests.items()}, limits=LIMITS
        )
        cache = LayoutCache(
            capacity,
            TapeGraphs(executor.spend, capture_s=capture_s, graph_bytes=10),
            clock=executor.now,
        )
        engine = Engine(executor, slots=4, policy=RotateGrow(), layout=Keyed(key, cache))
        for request in requests:
            engine.submit(request)
        finished = {done.id: list(done.tokens) for done in engine.run()}
        assert finished == {
            request.id: expected(request, tape)[0] for request, tape in requests.items()
        }
        stats = cache.stats()
        assert stats.hits + stats.misses == engine.windows
        assert stats.capture_s == pytest.approx(2 * capture_s * stats.captures)
        assert stats.bytes == 20 * len(cache)
        times[capture_s] = executor.now(), stats
    (free, stats), (paid, _) = times[0.0], times[1.0]
    assert paid - free == pytest.approx(2 * stats.captures)
    assert stats.captures >= 1
