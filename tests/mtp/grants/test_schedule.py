"""Schedules on paper: the published cases, and that an engine on tapes runs the very same ones."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.grants import Job, Rotate, grant_schedule
from mtp.policies import StaticK
from mtp.request import Request
from tests.support.tapes import engine_of, random_tape


def shown(schedule):
    return " ".join(f"{name}{rounds}" for name, rounds in schedule)


@pytest.mark.parametrize(
    ("jobs", "budget", "expected"),
    [
        ([Job("A", 4), Job("B", 3)], 2, "A2 B2 A2 B1"),
        ([Job("A", 4), Job("B", 3)], 1, "A2 B1 A1 B1 A1 B1"),
        ([Job("A", 4)], 2, "A4"),
        ([Job("A", 4), Job("B", 3, cancelled=True)], 2, "A2 A2"),
        ([Job("A", 4), Job("B", 3, declined=True)], 2, "A2 A2"),
        ([Job("A", 4), Job("B", 3)], 0, "A4"),
        ([Job("A", 40), Job("B", 3)], 8, "A8 B3 A32"),
        ([Job("A", 4, cancelled=True), Job("B", 3)], 2, "A2 B2 B1"),
        ([Job("A", 1), Job("B", 3)], 2, "A1 B3"),
        ([Job("A", 4), Job("B", 3), Job("C", 2), Job("D", 9)], 2, "A2 B2 C2 A2 B1"),
        ([Job("A", 4), Job("B", 3, priority=0), Job("C", 4, priority=2)], 2, "A2 C2 C2 B2 A2 B1"),
        ([], 2, ""),
    ],
    ids=str,
)
def test_the_schedule_is_the_published_one(jobs, budget, expected):
    assert shown(grant_schedule(jobs, budget=budget)) == expected


def test_a_newcomer_waits_one_round_because_the_counter_runs_on():
    for before in (1, 5, 50):
        requests = {
            Request(name, (1,), 60, ignore_stop=True): random_tape(n) for n, name in enumerate("A")
        }
        engine = engine_of(requests, StaticK(0), grants=Rotate(budget=4, share="tick"), slots=3)
        engine.executor.tapes |= {"B": random_tape(9)}
        for _ in range(before + 4):
            engine.step()
        engine.submit(Request("B", (1,), 3, ignore_stop=True))
        engine.run()
        assert [(grant.request, grant.rounds) for grant in engine.grants.log][:2] == [
            ("A", before + 5),
            ("B", 3),
        ]


@dataclass(frozen=True)
class Plain(StaticK):
    """Declines the requests named."""

    declined: frozenset[str] = frozenset()

    def declines(self, request):
        return request.id in self.declined


@st.composite
def jobs_of(draw):
    count = draw(st.integers(1, 5))
    kinds = st.sampled_from([{}, {}, {}, {"cancelled": True}, {"declined": True}])
    jobs = [
        Job(f"j{n}", draw(st.integers(1, 12)), draw(st.integers(0, 2)), **draw(kinds))
        for n in range(count)
    ]
    return [Job("first", draw(st.integers(2, 20)), draw(st.integers(0, 2))), *jobs]


@settings(max_examples=300, deadline=None)
@given(
    jobs_of(),
    st.integers(0, 5),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from(["tick", "window"]),
)
def test_the_engine_runs_the_same_schedule(jobs, budget, backlog, skip_cap, share):
    """One round is one token here; the others arrive after the first round."""
    requests = {
        Request(
            job.id,
            (1,),
            job.rounds,
            priority=job.priority,
            arrival_s=0.0 if n == 0 else 1e-6,
            ignore_stop=True,
        ): random_tape(n)
        for n, job in enumerate(jobs)
    }
    policy = Plain(0, declined=frozenset(job.id for job in jobs if job.declined))
    grants = Rotate(budget=budget, backlog=backlog, skip_cap=skip_cap, share=share, parked="wait")
    engine = engine_of(requests, policy, slots=1 + backlog + len(jobs), grants=grants)
    while engine.step():
        for job in jobs:
            if job.cancelled and any(entry.request.id == job.id for entry in engine.grants.ring):
                engine.cancel(job.id)
    ran = [(grant.request, grant.rounds) for grant in engine.grants.log]
    on_paper = grant_schedule(jobs, budget=budget, backlog=backlog, skip_cap=skip_cap)
    assert ran == on_paper
    assert len(engine.finished) == len(jobs)
    assert {done.finish for done in engine.finished} <= {"length", "cancelled"}
