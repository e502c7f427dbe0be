"""The tape executor: what windows cost, what a slot holds, and how large and how fast it gets."""

from __future__ import annotations

import time

import pytest

from mtp.buckets import Buckets
from mtp.costs import LinearCost
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.tape import Tape, leading
from mtp.tape.synthesis import Synthesis
from tests.support.tapes import LIMITS, engine_of, random_tape
from tests.support.yardstick import unit_s

COST = LinearCost(base=1.0, row=0.1, slot=0.01, draft=0.001, prompt_token=0.5, context=0.0001)


def one_window(*, sizes=(), policy=None):
    request = Request("a", (1, 2, 3), 9, ignore_stop=True)
    executor = TapeExecutor(
        {"a": Tape((5,) * 9, (3,) * 9)}, limits=LIMITS, cost=COST, buckets=Buckets(sizes)
    )
    engine = Engine(executor, slots=1, policy=policy or RotateGrow())
    engine.submit(request)
    engine.step()
    engine.step()
    return engine


def test_a_window_costs_its_rows_slots_depth_and_context_and_the_padding_too():
    tight, padded = one_window(), one_window(sizes=(8,))
    assert tight.steps[0].end_s == pytest.approx(1 + 3 * 0.5)
    for engine, rows, padding in ((tight, 4, 0), (padded, 8, 4)):
        step = engine.steps[1]
        assert (step.rows, step.padded) == (4, padding)
        # the anchor is at 3
        assert step.end_s - step.start_s == pytest.approx(
            1 + rows * 0.1 + 0.01 + 3 * 0.001 + 3 * 0.0001
        )
        assert step.phases.commit == pytest.approx(0.003)
    plain = one_window(policy=StaticK(0)).steps[1]
    assert plain.end_s - plain.start_s == pytest.approx(1.1103)
    assert plain.phases.commit == 0


class Recorder(TapeExecutor):
    """Keeps what its commits led to."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seen = []

    def _commit(self, slot, fed, depth):
        self.seen.append(super()._commit(slot, fed, depth))
        return self.seen[-1]


@pytest.mark.parametrize("depth", [0, 1, 3, 7])
def test_a_slot_holds_what_the_tape_has_and_its_drafts_match_as_the_tape_says(depth):
    tape = Tape.drawn(Synthesis("prose"), 40, seed=1)
    short = Tape(
        tape.tokens,
        tuple(min(n, i % 4) for i, n in enumerate(tape.matches)),
        tuple(c[: i % 4] for i, c in enumerate(tape.confidence)),
    )
    for one in (tape, short):
        executor = Recorder({"a": one}, limits=Limits(32_000, 500, frozenset()))
        engine = Engine(executor, slots=1, policy=RotateGrow(depth=depth))
        engine.submit(Request("a", (1,), 40))
        engine.run()
        emitted = 0
        for outcome in executor.seen:
            emitted += outcome.committed.kept
            at = emitted - 1
            if outcome.committed.finish:
                assert (outcome.held, outcome.drafts) == (0, ())
                continue
            assert outcome.held == len(outcome.drafts) == min(depth, len(one.confidence[at]))
            assert outcome.confidence == one.confidence[at][: outcome.held]
            assert leading(outcome.drafts, one.tokens[emitted:]) == min(
                one.matches[at], outcome.held
            )
        assert emitted == 40


def test_a_tape_that_is_too_short_ends_its_request_with_an_error(capfd):
    engine = engine_of(
        {Request("a", (1,), 20, ignore_stop=True): random_tape(0, length=9)}, RotateGrow(), slots=1
    )
    (done,) = engine.run()
    assert done.finish == "error"
    assert "its tape ends after 9 tokens" in done.error
    assert len(done.tokens) <= 9
    capfd.readouterr()


def synthetic_engine(slots, requests, *, new, rows=8, arrival_s=lambda n: 0.0):
    synthesis = Synthesis("mixed")
    tapes = {f"r{n}": Tape.drawn(synthesis, new, n % 50) for n in range(requests)}
    engine = Engine(
        TapeExecutor(tapes, limits=Limits(32_000, 4096, frozenset())),
        slots=slots,
        rows=rows,
        policy=RotateGrow(),
    )
    for n in range(requests):
        engine.submit(Request(f"r{n}", (1, 2, 3), new, arrival_s=arrival_s(n)))
    return engine


@pytest.mark.parametrize(
    ("slots", "requests"), [pytest.param(32, 10_000, marks=pytest.mark.slow), (1024, 1500)]
)
def test_thousands_of_requests_and_of_slots(slots, requests):
    engine = synthetic_engine(slots, requests, new=2, rows=512, arrival_s=lambda n: 0.001 * n)
    finished = engine.run()
    assert len(finished) == requests
    assert all(done.finish == "length" and len(done.tokens) == 2 for done in finished)
    assert sorted(engine.scheduler.free) == list(range(slots))


def per_window(slots, windows, requests):
    """Seconds and `unit_s` of a window once all slots decode, each the best of three."""
    engine = synthetic_engine(slots, requests, new=400)
    while (
        not all(not stream.prefilling for stream in engine.streams.values())
        or len(engine.streams) < slots
    ):
        engine.step()
    times = []
    for _ in range(3):
        before, began = engine.windows, time.process_time()
        while engine.windows < before + windows:
            engine.step()
        times.append(((time.process_time() - began) / windows, unit_s(200)))
    return min(seconds for seconds, _ in times), min(unit for _, unit in times)


def test_windows_are_fast_and_cost_no_worse_than_linear_in_the_slots():
    """Bounds a busy machine meets too; docs/performance.md has the measured speed."""
    few, unit = per_window(8, 100, 8)
    assert few < 75 * unit  # 25 were measured
    many, _ = per_window(512, 30, 512)
    some, _ = per_window(64, 60, 64)
    assert many < 1.6 * (512 / 64) * some
