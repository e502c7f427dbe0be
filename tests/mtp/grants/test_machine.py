"""Everything that can happen to an engine with grants, in any order; after every step the books
must agree."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.grants import Drr, Fifo, Rotate, Srpt, Strict, Vtc
from mtp.policies import RotateGrow
from mtp.request import Request
from tests.mtp.execution.test_drafter_guard import Drafter
from tests.support.tapes import LIMITS, expected, random_tape


class Faulty(TapeExecutor):
    """Its next window, or its drafter's next call, raises when it is told so."""

    window_fails = False

    def commit(self, groups, depth):
        if self.window_fails:
            self.window_fails = False
            raise RuntimeError("device lost")
        return super().commit(groups, depth)


class Policy(RotateGrow):
    def declines(self, request):
        return request.id.endswith("plain")


class GrantsMachine(RuleBasedStateMachine):
    @initialize(
        discipline=st.sampled_from([Rotate, Fifo, Strict, Drr, Vtc, Srpt]),
        budget=st.integers(0, 3),
        skip_cap=st.integers(0, 3),
        backlog=st.integers(0, 3),
        holders=st.integers(1, 2),
        more_slots=st.integers(0, 2),
        share=st.sampled_from(["tick", "window"]),
        parked=st.sampled_from(["auto", "wait", "plain"]),
    )
    def begin(self, discipline, budget, skip_cap, backlog, holders, more_slots, share, parked):
        self.slots = holders + backlog + more_slots
        self.drafter = Drafter()
        self.executor = Faulty({}, limits=LIMITS, drafter=self.drafter, reload_drafter=Drafter)
        grants = discipline(
            budget=budget,
            skip_cap=skip_cap,
            backlog=backlog,
            holders=holders,
            share=share,
            parked=parked,
        )
        self.engine = Engine(
            self.executor, slots=self.slots, policy=Policy(), grants=grants, prefill_chunk=3
        )
        self.requests = {}
        self.cancelled = set()

    @rule(count=st.integers(1, 4), data=st.data())
    def submit(self, count, data):
        for _ in range(count):
            name = f"r{len(self.requests)}" + data.draw(st.sampled_from(["", "", "", " plain"]))
            request = Request(
                name,
                (1,) * data.draw(st.integers(1, 8)),
                data.draw(st.integers(1, 30)),
                priority=data.draw(st.integers(0, 2)),
                arrival_s=self.executor.now() + data.draw(st.sampled_from([0.0, 0.0, 0.3])),
            )
            self.requests[name] = (request, random_tape(data.draw(st.integers(0, 99))))
            self.executor.tapes[name] = self.requests[name][1]
            self.engine.submit(request)

    @rule(times=st.integers(1, 4))
    def step(self, times):
        for _ in range(times):
            emitted = {
                stream.request.id: len(stream.tokens) for stream in self.engine.streams.values()
            }
            actions = len(self.engine.steps)
            self.engine.step()
            assert len(self.engine.steps) <= actions + 1
            marked = [entry.request.id for entry in self.engine.grants.ring if entry.cancelled]
            for stream in self.engine.streams.values():
                assert (
                    stream.request.id not in marked
                    or len(stream.tokens) == emitted[stream.request.id]
                )

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data):
        """Of anyone; rather of an entry of the ring, where there is one."""
        ring = [entry.request.id for entry in self.engine.grants.ring]
        name = data.draw(
            st.sampled_from(sorted(self.requests) if not ring or data.draw(st.booleans()) else ring)
        )
        finished = len(self.engine.finished)
        if name not in {done.id for done in self.engine.finished}:
            self.cancelled.add(name)
        self.engine.cancel(name)
        after = len(self.engine.finished)
        assert after <= finished + (name not in ring)  # in the ring it only marks
        self.engine.cancel(name)  # twice is a no-op
        assert len(self.engine.finished) == after

    @precondition(lambda self: self.engine.grants.holding)
    @rule(data=st.data())
    def park(self, data):
        holder = data.draw(st.sampled_from(sorted(self.engine.grants.holding)))
        self.engine.grants._park(self.engine.grants.holding[holder])

    @rule()
    def window_fault(self):
        self.executor.window_fails = True

    @rule()
    def drafter_fault(self):
        drafter = self.executor.drafting.drafter
        if drafter is not None:
            drafter.advances = [len(drafter.advanced) + 1]

    @invariant()
    def every_request_is_in_exactly_one_place(self):
        engine = self.engine
        queued = [request.id for request in engine.scheduler.queue]
        waiting = [entry.request.id for entry in engine.grants.ring if not entry.parked]
        live = [stream.request.id for stream in engine.streams.values()]
        ended = [done.id for done in engine.finished]
        assert sorted([*queued, *waiting, *live, *ended]) == sorted(self.requests)
        parked = {entry.request.id for entry in engine.grants.ring if entry.parked}
        holding = set(engine.grants.holding)
        assert parked | holding <= set(live)
        assert not parked & holding
        assert len(parked) + len(waiting) == len(engine.grants.ring)
        assert not (parked | holding) & {
            stream.request.id for stream in engine.streams.values() if stream.speculation_disabled
        }

    @invariant()
    def slots_are_all_there(self):
        engine = self.engine
        assert sorted([*engine.scheduler.free, *engine.streams]) == list(range(self.slots))
        assert len(engine.scheduler.free) >= engine.grants.waiters
        assert len(engine.grants.holding) <= engine.grants.discipline.holders

    @invariant()
    def what_has_ended_is_right(self):
        for done in self.engine.finished:
            tokens, finish = expected(*self.requests[done.id])
            if done.finish in ("cancelled", "error"):
                assert list(done.tokens) == tokens[: len(done.tokens)]
            assert (done.finish == "cancelled") == (done.id in self.cancelled)
            if done.finish in ("stop", "length"):
                assert (list(done.tokens), done.finish) == (tokens, finish)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        self.executor.window_fails = False
        for _ in range(3000):
            if not self.engine.step():
                break
        assert sorted(done.id for done in self.engine.finished) == sorted(self.requests)
        assert sorted(self.engine.scheduler.free) == list(range(self.slots))
        assert not self.engine.grants.ring
        assert not self.engine.grants.holding
        self.what_has_ended_is_right()


TestGrantsMachine = GrantsMachine.TestCase
TestGrantsMachine.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
class TestGrantsMachineLong(GrantsMachine.TestCase):
    settings = settings(
        max_examples=3000,
        stateful_step_count=80,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
