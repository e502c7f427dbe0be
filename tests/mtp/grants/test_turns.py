"""Whose turn a step is: caps, alternation, rotation, and prefill in chunks."""

from __future__ import annotations

import itertools
from collections import Counter

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.grants import Rotate
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from tests.support.grant_loads import TICK, grants, load, steps
from tests.support.tapes import LIMITS, engine_of, random_tape


def test_tick_gives_the_holder_all_rows_and_alternates_strictly_with_windows_of_all_others():
    engine = load(30, 30, 30, 20, 20, policy=RotateGrow())
    parked_or_held = {"a", "b", "c"}
    steps(engine, 40)
    while {"d", "e"} & {stream.request.id for stream in engine.streams.values()} and engine.step():
        pass
    by_window = {}
    for round_ in engine.rounds:
        by_window.setdefault(round_.window, []).append(round_)
    kinds = []
    for rounds in by_window.values():
        names = {round_.request for round_ in rounds}
        kinds.append(names <= parked_or_held)
        assert len(names) == 1 if kinds[-1] else all(round_.rows == 1 for round_ in rounds)
        assert kinds[-1] or names <= {"d", "e"}
    assert max(round_.rows for round_ in engine.rounds) == 4
    both = engine.steps[3:]
    assert all(
        first.speculative != second.speculative for first, second in itertools.pairwise(both)
    )


def test_without_others_the_holders_steps_follow_each_other():
    engine = load(6, 6)
    engine.run()
    assert all(step.speculative for step in engine.steps)


def test_at_most_one_model_action_per_step():
    class Counting(TapeExecutor):
        actions = 0

        def prefill(self, *args):
            self.actions += 1
            return super().prefill(*args)

        def window(self, *args):
            self.actions += 1
            return super().window(*args)

    requests = {
        Request(name, (1,) * 9, 12, ignore_stop=True): random_tape(n)
        for n, name in enumerate("abcdef")
    }
    executor = Counting({request.id: tape for request, tape in requests.items()}, limits=LIMITS)
    engine = Engine(executor, slots=6, policy=RotateGrow(), grants=TICK, prefill_chunk=4)
    for request in requests:
        engine.submit(request)
    before = 0
    while engine.step():
        assert executor.actions - before == 1
        before = executor.actions
    assert len(engine.finished) == 6


def test_window_share_gives_the_holders_w_and_the_rest_one():
    engine = load(20, 20, 20, 20, 20, policy=RotateGrow(), grants=Rotate(budget=3, holders=2))
    turn, caps, rows = engine.grants.turn, [], Counter()

    def watched(streams):
        caps.append(turn(streams).caps)
        return turn(streams)

    engine.grants.turn = watched
    while engine.step():
        assert sum(cap is None for cap in caps[-1].values()) <= 2
        last = engine.windows - 1 if engine.steps[-1].kind == "window" else None
        for round_ in (round_ for round_ in engine.rounds if round_.window == last):
            rows[caps[-1][round_.slot], round_.rows] += 1
    assert {size for cap, size in rows if cap == 1} == {1}
    assert {size for cap, size in rows if cap is None} == {1, 2, 4}
    assert {cap for cap, _ in rows} == {None, 1}
    assert max(Counter(round_.window for round_ in engine.rounds).values()) > 2


def test_parked_requests_wait_or_decode_plainly():
    def rounds_while_parked(parked):
        engine = load(12, 12, grants=Rotate(budget=2, share="tick", parked=parked))
        count = 0
        while engine.step():
            names = {entry.request.id for entry in engine.grants.ring if entry.parked}
            count += bool(engine.steps) and not engine.steps[-1].speculative and bool(names)
        return count, grants(engine)

    assert rounds_while_parked("wait")[0] == rounds_while_parked("auto")[0] == 0
    assert rounds_while_parked("plain")[0] > 3


def test_no_drafts_are_made_where_nobody_may_use_them():
    depths = []

    class Watching(TapeExecutor):
        def window(self, groups, depth):
            depths.append(([group.slot for group in groups], depth))
            return super().window(groups, depth)

    requests = {
        Request(name, (1,), 9, ignore_stop=True): random_tape(n) for n, name in enumerate("abcde")
    }
    executor = Watching({request.id: tape for request, tape in requests.items()}, limits=LIMITS)
    engine = Engine(executor, slots=5, policy=RotateGrow(), grants=TICK)
    for request in requests:
        engine.submit(request)
    engine.run()
    # d and e, beyond the backlog
    assert {depth for slots, depth in depths if set(slots) <= {1, 2}} == {0}
    assert {depth for slots, depth in depths if 0 in slots} == {3}


def test_windows_of_the_others_rotate_on_their_own():
    """Ten plain requests in windows of four rows: the holder's windows in between must not
    restart their rotation."""
    requests = {Request("holder", (1,), 60, ignore_stop=True): random_tape(0)}
    requests |= {
        Request(f"r{n}", (1,), 12, arrival_s=1e-6, ignore_stop=True): random_tape(n)
        for n in range(1, 13)
    }
    engine = engine_of(
        requests, StaticK(0), slots=14, rows=4, grants=Rotate(budget=1000, share="tick")
    )
    while sum(not stream.prefilling for stream in engine.streams.values()) < 11:
        engine.step()
    first = engine.windows
    while engine.windows < first + 20:
        engine.step()
    turns = Counter(
        round_.request
        for round_ in engine.rounds
        if round_.window >= first and round_.request != "holder"
    )
    assert len(turns) == 10
    assert max(turns.values()) - min(turns.values()) <= 1


def test_a_long_prompt_of_a_plain_request_stalls_nobody_and_is_not_starved():
    """Holder, plain decoding and a plain request's long prompt: each acts at least every fourth
    step."""
    requests = {Request("holder", (1,), 60, ignore_stop=True): random_tape(0)}
    requests |= {
        Request(name, (1,), 60, arrival_s=1e-6, ignore_stop=True): random_tape(n)
        for n, name in enumerate(["w1", "w2", "plain"])
    }
    requests[Request("long", (1,) * 60, 2, arrival_s=0.3, ignore_stop=True)] = random_tape(7)
    engine = engine_of(
        requests, StaticK(0), slots=8, prefill_chunk=4, grants=Rotate(budget=50, share="tick")
    )
    while not any(stream.request.id == "long" for stream in engine.streams.values()):
        engine.step()
    first = len(engine.steps) - 1
    while any(stream.prefilling for stream in engine.streams.values()):
        engine.step()
    kinds = [(step.kind, step.speculative) for step in engine.steps[first:]]
    assert kinds.count(("prefill", False)) == 15
    for kind in (("window", True), ("window", False), ("prefill", False)):
        places = [place for place, this in enumerate(kinds) if this == kind]
        assert max(b - a for a, b in itertools.pairwise(places)) <= 4
    assert all(a[1] != b[1] for a, b in itertools.pairwise(kinds))


def test_a_long_prompt_of_a_waiter_is_the_first_round_of_its_grant():
    engine = load(
        12, 6, 40, prompt=30, prefill_chunk=4, grants=Rotate(budget=3, backlog=1, share="tick")
    )
    engine.run()
    assert grants(engine).startswith("a3 b3 a3 b3")
    speculative = [step.speculative for step in engine.steps]
    plain = [n for n, flag in enumerate(speculative) if not flag]
    # c has every second step, also while b's prompt is read
    assert max(b - a for a, b in itertools.pairwise(plain)) == 2
