"""The engine one window late: cancels, grants, prefills and faults come out as they do when the
host plans."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mtp.engine import Engine
from mtp.execution.device_planned import DevicePlanningModel
from mtp.execution.model import ModelExecutor
from mtp.grants import Rotate
from mtp.policies import RotateGrow
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.device_planned import CONTEXT, CPU, EIGHT, SLOTS, host, run
from tests.support.replay_drafter import ReplayDrafter

WINDOW_SHARING = Rotate(budget=2, backlog=2, share="window", parked="plain")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=6)


@pytest.fixture(scope="module")
def target(folder):
    return load_target(folder, slots=SLOTS, context=CONTEXT, dtype="fp32", device=CPU)


def few(count, new=20):
    return [
        Request(f"r{n}", tuple(range(5 + n, 9 + n)), new, ignore_stop=True) for n in range(count)
    ]


def alone(target, todo):
    return [
        done.prompt + done.tokens
        for done in host(target, None, RotateGrow(depth=0), slots=1, todo=todo).finished
    ]


def on(kind, target, drafter, rows=8, **options):
    options |= {
        "slots": SLOTS,
        "rows": rows,
        "largest_group": 4,
        "depth": 3,
        "buckets": EIGHT,
        "device": CPU,
    }
    if kind == "device":
        return DevicePlanningModel(target, drafter, policy=RotateGrow(), **options)
    return ModelExecutor(target, drafter, **options)


def replayed(target, todo):
    return ReplayDrafter(alone(target, todo), slots=SLOTS, context=CONTEXT)


def test_a_parked_request_that_is_cancelled_ends_and_all_others_go_on(target):
    todo = few(3)
    drafter = replayed(target, todo)
    found = {}
    for kind in ("host", "device"):
        engine = Engine(
            on(kind, target, drafter), slots=3, policy=RotateGrow(), grants=WINDOW_SHARING
        )
        for request in todo:
            engine.submit(request)
        cancelled = False
        while engine.step():
            ring = engine.grants.ring
            if not cancelled and len(ring) == 2 and all(entry.parked for entry in ring):
                engine.cancel(ring[1].request.id)
                cancelled = True
        found[kind] = {done.id: done.finish for done in engine.finished}
        assert sorted(engine.scheduler.free) == [0, 1, 2]
    assert found["device"] == found["host"]
    assert sorted(found["device"].values()) == ["cancelled", "length", "length"]


def test_grants_do_not_stand_empty_while_a_prompt_is_read(target):
    todo = [*few(3, 40), Request("long", tuple(range(100)), 3, ignore_stop=True)]
    drafter = replayed(target, few(3, 40))
    idle = {}
    for kind in ("host", "device"):
        engine = Engine(
            on(kind, target, drafter),
            slots=4,
            policy=RotateGrow(),
            grants=WINDOW_SHARING,
            prefill_chunk=4,
        )
        turns, turn = [], engine.grants.turn

        def spy(streams, turn=turn, turns=turns, engine=engine):
            turns.append(turn(streams))
            return turns[-1]

        engine.grants.turn = spy
        for request in todo:
            engine.submit(request)
        while engine.step():
            assert turns[-1].speculative or not engine.grants.ring or engine.grants.holding, (
                "nobody holds although some wait"
            )
        idle[kind] = sum(not each.speculative for each in turns)
    assert idle["device"] <= idle["host"] + 1


def test_steps_never_overlap(target):
    todo = [*few(2, 30), Request("late", tuple(range(60)), 3, ignore_stop=True, arrival_s=0.02)]
    engine = Engine(
        on("device", target, replayed(target, few(2, 30))),
        slots=3,
        policy=RotateGrow(),
        prefill_chunk=8,
    )
    for request in todo:
        engine.submit(request)
    engine.run()
    assert all(earlier.end_s <= later.start_s for earlier, later in pairwise(engine.steps))
    kinds = [step.kind for step in engine.steps]
    assert "window" in kinds[: kinds.index("prefill", 3)]


@pytest.mark.parametrize("always", [False, True])
def test_a_window_that_fails_at_once_ends_those_who_were_in_it(target, always, capfd):
    todo = few(6, 10)
    engine = Engine(
        on("device", target, replayed(target, todo), rows=4),
        slots=SLOTS,
        rows=4,
        policy=RotateGrow(),
    )
    executor = engine.executor
    verify, calls, planned = executor.verify, [], []

    def failing(bucket, bans):
        calls.append(1)
        if len(calls) == 10 or (len(calls) > 10 and always):
            planned.append(
                {
                    engine.streams[slot].request.id
                    for slot, rows in enumerate(executor.rows_in_work())
                    if rows
                }
            )
            assert executor.rows_in_work() == executor._next.starts.diff().tolist()
            raise RuntimeError("boom")
        verify(bucket, bans)

    executor.verify = failing
    for request in todo:
        engine.submit(request)
    steps = 0
    while engine.step():
        steps += 1
        assert steps < 200
    failed = {done.id for done in engine.finished if done.finish == "error"}
    assert failed == set().union(*planned)
    assert (
        failed
        == {request.id for request in todo}
        - {d.id for d in engine.finished if d.finish == "length"}
    ) is True
    assert len(planned) > 1 if always else len(planned) == 1
    assert capfd.readouterr().out.count("ERR step failed") == len(planned)


def test_a_slot_that_a_cancel_frees_waits_for_its_last_window(target):
    """Its new request is told of its own drafter's loss, and what was computed for the old one
    is kept."""

    class Lost(ReplayDrafter):
        bad = False

        def clear(self, slot):
            if self.bad:
                raise RuntimeError("lost")
            super().clear(slot)

    todo, new = few(2, 30), Request("new", (9, 9, 9), 10, ignore_stop=True)
    found = {}
    for kind in ("host", "device"):
        drafter = Lost(alone(target, [*todo, new]), slots=SLOTS, context=CONTEXT)
        engine = Engine(on(kind, target, drafter), slots=2, policy=RotateGrow())
        for request in todo:
            engine.submit(request)
        for _ in range(6):
            engine.step()
        engine.cancel("r0")
        engine.submit(new)
        drafter.bad = True
        engine.run()
        found[kind] = {
            done.id: (done.finish, bool(done.speculation_disabled)) for done in engine.finished
        }
        kept = next(len(done.tokens) for done in engine.finished if done.id == "r0")
        assert (
            kept == sum(round_.committed for round_ in engine.rounds if round_.request == "r0") + 1
        )
    assert found["device"] == found["host"]
    assert found["device"]["new"] == ("length", True)


def test_each_side_of_the_grants_has_its_own_rotation(target):
    """Two hold a grant, three are plain for good; when the holders have ended, the plain ones'
    windows begin where the host's do."""
    todo = [
        Request(request.id, request.prompt, 6 if n < 1 else 16, ignore_stop=True)
        for n, request in enumerate(few(5))
    ]
    grants = Rotate(budget=0, backlog=0, share="window", parked="plain")
    found = {}
    for kind in ("host", "device"):
        engine = run(
            on(kind, target, replayed(target, todo), rows=3),
            RotateGrow(),
            slots=5,
            rows=3,
            todo=todo,
            grants=grants,
        )
        found[kind] = [(r.window, r.slot, r.rows) for r in engine.rounds]
    assert found["device"] == found["host"]
