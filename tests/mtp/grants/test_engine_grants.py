"""Grants in the engine, on tapes: each rule and edge of the scheduler has a test of its own."""

from __future__ import annotations

import timeit
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.grants import Drr, Fifo, Rotate, Srpt, Strict, Vtc
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from tests.mtp.test_engine import workloads
from tests.support.grant_loads import grants, load, states, steps
from tests.support.tapes import engine_of, expected, random_tape

DISCIPLINES = [Rotate, Fifo, Strict, Drr, Vtc, Srpt]


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
@given(
    workloads(),
    disciplines(),
    st.sampled_from([RotateGrow(), StaticK(1), StaticK(0)]),
    st.integers(0, 3),
    st.sampled_from([3, 16]),
)
def test_tokens_equal_plain_decoding_under_every_discipline(
    requests, grants, policy, more_slots, chunk
):
    slots = grants.holders + grants.backlog + more_slots
    engine = engine_of(requests, policy, slots=slots, grants=grants, prefill_chunk=chunk)
    finished = {done.id: done for done in engine.run()}
    assert len(engine.finished) == len(requests)
    for request, tape in requests.items():
        assert (list(finished[request.id].tokens), finished[request.id].finish) == expected(
            request, tape
        )
    assert (sorted(engine.scheduler.free), engine.grants.ring, engine.grants.holding) == (
        list(range(slots)),
        [],
        {},
    )


def test_a_waiter_has_no_slot_until_its_first_round_and_one_is_kept_for_it():
    engine = load(9, 9, 9, 9, 9, slots=4, grants=Rotate(budget=3, share="tick"))
    steps(engine, 2)
    assert states(engine) == {"holding": ["a"], "ring": ["b", "c"], "live": ["a", "d"]}
    # the last two slots are kept for b and c
    assert [request.id for request in engine.scheduler.queue] == ["e"]
    assert len(engine.scheduler.free) == 2
    engine.run()
    assert grants(engine).startswith("a3 b3 c3")


def test_a_request_beyond_the_backlog_decodes_plainly_for_good():
    engine = load(12, 4, 4, 40, policy=RotateGrow())
    engine.run()
    assert "d" not in {grant.request for grant in engine.grants.log}
    assert {round_.rows for round_ in engine.rounds if round_.request == "d"} == {1}
    alone_at_the_end = list(engine.grants.log)[-1].ended
    assert engine.grants.clock == alone_at_the_end


def test_a_newcomer_after_a_park_finds_the_ring_as_the_promotion_leaves_it():
    engine = load(12, 12, grants=Rotate(budget=3, share="tick"))
    steps(engine, 3)
    assert (states(engine)["holding"], states(engine)["ring"]) == ([], ["b", "a"])
    engine.executor.tapes |= {"c": random_tape(9)}
    engine.submit(Request("c", (1,), 3, ignore_stop=True))
    engine.step()
    assert (states(engine)["holding"], states(engine)["ring"]) == (["b"], ["a", "c"])


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
    # parked: prefill and two windows were its three
    assert states(engine) == {
        "holding": [],
        "ring": ["b", "a"],
        "live": ["a"],
    }
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
    engine = load(
        30, 30, policy=RotateGrow(), grants=Rotate(budget=budget, unit=unit, share="tick")
    )
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
    best = (
        min(
            timeit.repeat(
                lambda: engine.grants.round("a", 1, 0.0, over=False), number=2000, repeat=7
            )
        )
        / 2000
    )
    assert best < 10e-6
