"""Grants in the engine, on tapes: each rule and edge of the scheduler has a test of its own."""

from __future__ import annotations

import itertools
import timeit
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.grants import Drr, Fifo, Rotate, Srpt, Strict, Vtc
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from tests.tapes import LIMITS, engine_of, expected, random_tape
from tests.test_engine import workloads

DISCIPLINES = [Rotate, Fifo, Strict, Drr, Vtc, Srpt]
TICK = Rotate(budget=2, share="tick")


def load(*rounds, prompt=1, priorities=(), **options):
    """Requests a, b, ...: one token is one round where nobody has drafts; all but the first arrive after the first step."""
    requests = {}
    for n, (name, count) in enumerate(zip("abcdefgh", rounds, strict=False)):
        priority = priorities[n] if priorities else 1
        arrival = 0.0 if n == 0 else 1e-6
        requests[Request(name, (1,) * prompt, count, priority=priority, arrival_s=arrival, ignore_stop=True)] = random_tape(n)
    return engine_of(requests, **({"policy": StaticK(0), "slots": 8, "grants": TICK} | options))


def steps(engine, count):
    for _ in range(count):
        engine.step()


def grants(engine):
    return " ".join(f"{grant.request}{grant.rounds}" for grant in engine.grants.log)


def states(engine):
    return {
        "holding": [*engine.grants.holding],
        "ring": [entry.request.id for entry in engine.grants.ring],
        "live": sorted(stream.request.id for stream in engine.streams.values()),
    }


@st.composite
def disciplines(draw):
    return draw(st.sampled_from(DISCIPLINES))(
        budget=draw(st.integers(0, 4)),
        unit=draw(st.sampled_from(["rounds", "tokens", "ms"])),
        skip_cap=draw(st.integers(0, 3)),
        backlog=draw(st.integers(0, 3)),
        holders=draw(st.integers(1, 3)),
        share=draw(st.sampled_from(["window", "tick"])),
        parked=draw(st.sampled_from(["auto", "wait", "plain"])),
    )


@settings(max_examples=300, deadline=None)
@given(workloads(), disciplines(), st.sampled_from([RotateGrow(), StaticK(1), StaticK(0)]), st.integers(0, 3), st.sampled_from([3, 16]))
def test_tokens_equal_plain_decoding_under_every_discipline(requests, grants, policy, more_slots, chunk):
    slots = grants.holders + grants.backlog + more_slots
    engine = engine_of(requests, policy, slots=slots, grants=grants, prefill_chunk=chunk)
    finished = {done.id: done for done in engine.run()}
    assert len(engine.finished) == len(requests)
    for request, tape in requests.items():
        assert (list(finished[request.id].tokens), finished[request.id].finish) == expected(request, tape)
    assert (sorted(engine.free), engine.grants.ring, engine.grants.holding) == (list(range(slots)), [], {})


# ---- whose turn it is


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
    assert all(first.speculative != second.speculative for first, second in itertools.pairwise(both))


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

    requests = {Request(name, (1,) * 9, 12, ignore_stop=True): random_tape(n) for n, name in enumerate("abcdef")}
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

    requests = {Request(name, (1,), 9, ignore_stop=True): random_tape(n) for n, name in enumerate("abcde")}
    executor = Watching({request.id: tape for request, tape in requests.items()}, limits=LIMITS)
    engine = Engine(executor, slots=5, policy=RotateGrow(), grants=TICK)
    for request in requests:
        engine.submit(request)
    engine.run()
    assert {depth for slots, depth in depths if set(slots) <= {1, 2}} == {0}  # d and e, beyond the backlog
    assert {depth for slots, depth in depths if 0 in slots} == {3}


def test_windows_of_the_others_rotate_on_their_own():
    """Ten plain requests in windows of four rows: the holder's windows in between must not restart their rotation."""
    requests = {Request("holder", (1,), 60, ignore_stop=True): random_tape(0)}
    requests |= {Request(f"r{n}", (1,), 12, arrival_s=1e-6, ignore_stop=True): random_tape(n) for n in range(1, 13)}
    engine = engine_of(requests, StaticK(0), slots=14, rows=4, grants=Rotate(budget=1000, share="tick"))
    while sum(not stream.prefilling for stream in engine.streams.values()) < 11:
        engine.step()
    first = engine.windows
    while engine.windows < first + 20:
        engine.step()
    turns = Counter(round_.request for round_ in engine.rounds if round_.window >= first and round_.request != "holder")
    assert len(turns) == 10
    assert max(turns.values()) - min(turns.values()) <= 1


# ---- the ring


def test_a_waiter_has_no_slot_until_its_first_round_and_one_is_kept_for_it():
    engine = load(9, 9, 9, 9, 9, slots=4, grants=Rotate(budget=3, share="tick"))
    steps(engine, 2)
    assert states(engine) == {"holding": ["a"], "ring": ["b", "c"], "live": ["a", "d"]}
    assert [request.id for request in engine.waiting] == ["e"]  # the last two slots are kept for b and c
    assert len(engine.free) == 2
    engine.run()
    assert grants(engine).startswith("a3 b3 c3")


def test_a_request_beyond_the_backlog_decodes_plainly_for_good():
    engine = load(12, 4, 4, 40, policy=RotateGrow())
    engine.run()
    assert "d" not in {grant.request for grant in engine.grants.log}
    assert {round_.rows for round_ in engine.rounds if round_.request == "d"} == {1}
    alone_at_the_end = list(engine.grants.log)[-1].ended
    assert engine.grants.clock == alone_at_the_end


@pytest.mark.parametrize("backlog", [1, 2, 3])
def test_ring_and_live_sessions_peak_at_backlog_plus_1(backlog):
    engine = load(*[12] * 6, grants=Rotate(budget=2, backlog=backlog, share="tick"))
    sizes = []
    while engine.step():
        sizes.append(len(engine.grants.ring))
    assert max(sizes) == engine.grants.ring_peak == backlog + 1
    assert engine.grants.live_peak == backlog + 1


def test_the_first_round_counts_as_round_1_and_a_promoted_one_runs_in_the_promotions_step():
    engine = load(8, 8, grants=Rotate(budget=3, share="tick"))
    steps(engine, 3)
    assert states(engine) == {"holding": [], "ring": ["b", "a"], "live": ["a"]}  # parked: prefill and two windows were its three
    engine.step()
    assert states(engine)["holding"] == ["b"]
    assert [len(stream.tokens) for stream in engine.streams.values()] == [3, 1]
    steps(engine, 2)
    assert states(engine)["ring"] == ["a", "b"]
    engine.step()
    assert (states(engine)["holding"], engine.grants.holding["a"].rounds) == (["a"], 1)


def test_finishing_wins_over_expiring():
    engine = load(4, 2, grants=Rotate(budget=4, share="tick"))
    engine.run()
    assert grants(engine) == "a4 b2"
    assert engine.grants.ring_peak == 1  # a was never parked


def test_budget_0_is_no_rotation_and_no_waiting():
    engine = load(9, 5, 5, grants=Rotate(budget=0, share="tick"))
    engine.run()
    assert grants(engine) == "a9"
    assert engine.grants.ring_peak == 0


def test_the_budget_is_read_once_per_grant():
    engine = load(12, 12, grants=Rotate(budget=4, share="tick"))
    steps(engine, 2)
    engine.grants.budget = 1
    engine.run()
    assert grants(engine).startswith("a4 b1 a1 b1 a1")


@pytest.mark.parametrize(("unit", "budget"), [("tokens", 6), ("ms", 100)])
def test_budgets_in_tokens_and_milliseconds(unit, budget):
    engine = load(30, 30, policy=RotateGrow(), grants=Rotate(budget=budget, unit=unit, share="tick"))
    spent = {}
    seen = 0
    engine.step()
    while engine.step():
        step = engine.steps[-1]
        seen += 1000 * (step.end_s - step.start_s)
        for grant in engine.grants.log[len(spent) :]:
            spent[len(spent)] = (grant.tokens, seen)
            seen = 0
    parked = [spent[n] for n in range(1, len(spent) - 2)]
    used = [tokens if unit == "tokens" else ms for tokens, ms in parked]
    most = 4 if unit == "tokens" else 47  # a round's
    assert len(used) > 3
    assert all(budget <= amount + 1e-6 < budget + most for amount in used)


def test_an_uncontended_round_costs_one_increment_and_one_comparison():
    made = Counter()

    class Counted(float):
        def __add__(self, other):
            made["increment"] += 1
            return Counted(float(self) + other)

        def __ge__(self, other):
            made["comparison"] += 1
            return float(self) >= other

        def __gt__(self, other):
            made["comparison"] += 1
            return float(self) > other

    engine = load(50)
    engine.step()
    entry = engine.grants.holding["a"]
    entry.used, entry.budget = Counted(0), Counted(2)

    class Watched(list):
        def __len__(self):
            made["comparison"] += 1  # with 0
            return super().__len__()

    engine.grants.ring = Watched()
    for _ in range(10):
        engine.grants.round("a", 1, 0.0, over=False)
    assert made == {"increment": 10, "comparison": 10}


def test_an_uncontended_round_is_measured():
    """Far below a thousandth of any window; the limit leaves room for a busy machine."""
    engine = load(50)
    engine.step()
    best = min(timeit.repeat(lambda: engine.grants.round("a", 1, 0.0, over=False), number=2000, repeat=7)) / 2000
    assert best < 10e-6


# ---- cancels, declines, faults


def test_S02_cancel_only_marks_and_nothing_leaks_or_ends_twice():
    """Active C; ring [A parked, B waiting]; cancel A, A again, B; C ends."""
    engine = load(40, 8, 8, grants=Rotate(budget=4, share="tick"), priorities=(1, 1, 1))
    steps(engine, 7)
    assert (states(engine)["holding"], states(engine)["ring"]) == (["b"], ["c", "a"])
    (parked,) = (stream for stream in engine.streams.values() if stream.request.id == "a")
    got = tuple(parked.tokens)
    for name in ("a", "a", "c", "a"):
        engine.cancel(name)
    assert states(engine)["ring"] == ["c", "a"]  # marked: they hold their places
    assert not engine.finished
    finished = {done.id: done for done in engine.run()}
    assert len(engine.finished) == 3
    assert (finished["a"].tokens, finished["a"].finish) == (got, "cancelled")
    assert (finished["c"].tokens, finished["c"].finish) == ((), "cancelled")
    assert finished["b"].finish == "length"
    assert sorted(engine.free) == list(range(8))
    assert not engine.step()


def test_S02_cancel_between_admission_and_the_first_round():
    engine = load(8, 4, 4, prompt=9, prefill_chunk=4)
    engine.step()
    assert states(engine)["holding"] == ["a"]
    engine.cancel("a")
    finished = {done.id: done for done in engine.run()}
    assert (finished["a"].tokens, finished["a"].finish) == ((), "cancelled")
    assert [finished[name].finish for name in "bc"] == ["length", "length"]
    assert sorted(engine.free) == list(range(8))


def test_a_cancelled_waiter_holds_its_place_until_it_is_picked_and_the_next_is_taken_in_the_same_step():
    engine = load(9, 3, 3, 3, grants=Rotate(budget=4, share="tick"))
    steps(engine, 2)
    engine.cancel("b")
    assert states(engine)["ring"] == ["b", "c"]
    steps(engine, 3)  # d, beyond the backlog, has a step in between
    while states(engine)["ring"][:1] == ["b"]:
        engine.step()
    assert states(engine)["holding"] == ["c"]
    assert [done.id for done in engine.finished if done.finish == "cancelled"] == ["b"]
    assert "d" not in grants(engine)


def test_a_cancelled_parked_request_decodes_no_further_even_where_parked_ones_do():
    engine = load(30, 30, grants=Rotate(budget=4, share="window"))
    while not any(entry.parked for entry in engine.grants.ring):
        engine.step()
    (parked,) = (entry.request.id for entry in engine.grants.ring if entry.parked)
    got = next(tuple(stream.tokens) for stream in engine.streams.values() if stream.request.id == parked)
    engine.cancel(parked)
    finished = {done.id: done for done in engine.run()}
    assert (finished[parked].tokens, finished[parked].finish) == (got, "cancelled")


def test_a_waiter_the_policy_declines_goes_to_plain_decoding():
    class Declining(StaticK):
        def declines(self, request):
            return request.id == "b"

    engine = load(8, 8, 8, policy=Declining(0))
    steps(engine, 2)
    assert states(engine)["ring"] == ["b", "c", "a"]
    finished = {done.id: done for done in engine.run()}
    assert grants(engine) == "a2 c2 a2 c2 a2 c2 a2 c2"
    assert [len(finished[name].tokens) for name in "abc"] == [8, 8, 8]


def test_S04_a_request_whose_admission_raises_ends_once_and_the_next_are_served(capfd):
    class Refusing(TapeExecutor):
        def admit(self, slot, request):
            if request.id == "a":
                raise RuntimeError("no room for its state")
            super().admit(slot, request)

    class Declining(StaticK):
        def declines(self, request):
            return request.id == "b"

    requests = {Request(name, (1,), 5, ignore_stop=True): random_tape(n) for n, name in enumerate("abc")}
    executor = Refusing({request.id: tape for request, tape in requests.items()}, limits=LIMITS)
    engine = Engine(executor, slots=3, policy=Declining(0), grants=TICK)
    for request in requests:
        engine.submit(request)
    finished = [(done.id, done.finish, len(done.tokens)) for done in engine.run()]
    assert sorted(finished) == [("a", "error", 0), ("b", "length", 5), ("c", "length", 5)]
    assert sum(line.startswith("ERR ") for line in capfd.readouterr().err.splitlines()) == 1
    assert sorted(engine.free) == [0, 1, 2]


def test_S04_a_waiter_whose_admission_raises_lets_the_next_one_in():
    class Refusing(TapeExecutor):
        def admit(self, slot, request):
            if request.id == "b":
                raise RuntimeError("no room for its state")
            super().admit(slot, request)

    engine = load(6, 6, 6)
    engine.executor.__class__ = Refusing
    finished = {done.id: done.finish for done in engine.run()}
    assert finished == {"a": "length", "b": "error", "c": "length"}
    assert grants(engine) == "a2 c2 a2 c2 a2 c2"


def test_S06_a_failed_holder_ends_once_and_the_ring_goes_on():
    class Failing(TapeExecutor):
        def commit(self, groups, depth):
            if groups[0].slot == 0 and self._places[0].emitted == 3:
                raise RuntimeError("device lost")
            return super().commit(groups, depth)

    engine = load(9, 6, 6, 9)
    engine.executor.__class__ = Failing
    finished = {done.id: done for done in engine.run()}
    assert len(engine.finished) == 4
    assert {name: finished[name].finish for name in "abcd"} == {"a": "error", "b": "length", "c": "length", "d": "length"}
    assert len(finished["a"].tokens) == 3
    assert sorted(engine.free) == list(range(8))


# ---- prefill in chunks


def test_a_long_prompt_of_a_plain_request_stalls_nobody_and_is_not_starved():
    """Holder, plain decoding and a plain request's long prompt: each acts at least every fourth step."""
    requests = {Request("holder", (1,), 60, ignore_stop=True): random_tape(0)}
    requests |= {Request(name, (1,), 60, arrival_s=1e-6, ignore_stop=True): random_tape(n) for n, name in enumerate(["w1", "w2", "plain"])}
    requests[Request("long", (1,) * 60, 2, arrival_s=0.3, ignore_stop=True)] = random_tape(7)
    engine = engine_of(requests, StaticK(0), slots=8, prefill_chunk=4, grants=Rotate(budget=50, share="tick"))
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
    engine = load(12, 6, 40, prompt=30, prefill_chunk=4, grants=Rotate(budget=3, backlog=1, share="tick"))
    engine.run()
    assert grants(engine).startswith("a3 b3 a3 b3")
    speculative = [step.speculative for step in engine.steps]
    plain = [n for n, flag in enumerate(speculative) if not flag]
    assert max(b - a for a, b in itertools.pairwise(plain)) == 2  # c has every second step, also while b's prompt is read
