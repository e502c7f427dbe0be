"""The device plans: the same windows as the host's planner, read one window late, no host read
between them."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from mtp.engine import Engine
from mtp.grants import Rotate
from mtp.graphs.backends import CpuGraphs, FailingGraphs
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import RotateGrow, StaticK
from mtp.targets import load_target
from mtp.windows import SlotView
from tests.support.checkpoints import write_qwen3_5
from tests.support.device_planned import (
    CONTEXT,
    CPU,
    POLICIES,
    SLOTS,
    device,
    drafter_of,
    ends,
    host,
    planner,
    requests,
    run,
    windows,
)
from tests.support.replay_drafter import ReplayDrafter


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=6)


@pytest.fixture(scope="module")
def target(folder):
    return load_target(folder, slots=SLOTS, context=CONTEXT, dtype="fp32", device=CPU)


@pytest.fixture(scope="module")
def texts(target):
    alone = host(target, None, StaticK(0), slots=1, todo=requests(9))
    return [done.prompt + done.tokens for done in alone.finished]


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("none", StaticK(0)),
        *(("replay", policy) for policy in POLICIES),
        ("mtp", RotateGrow()),
        *(
            pytest.param(kind, policy, marks=pytest.mark.slow)
            for kind, policy in product(("lookup", "mtp"), POLICIES)
            if (kind, policy) != ("mtp", RotateGrow())
        ),
    ],
    ids=str,
)
def test_windows_are_those_of_the_host_s_planner_one_by_one(folder, target, texts, kind, policy):
    accepted = 0
    for slots, rows in ((SLOTS, 8), (2, 8), (4, 5), (1, 3)):
        todo = requests(slots)
        drafter = drafter_of(kind, folder, target, texts)
        mine = device(
            target, drafter, policy, slots=slots, rows=rows, todo=todo, captured=slots == 4
        )
        reference = host(target, drafter, policy, slots=slots, rows=rows, todo=todo)
        assert windows(mine) == windows(reference)
        assert ends(mine) == ends(reference)
        assert mine.windows == reference.windows
        accepted += sum(round_.accepted for round_ in mine.rounds)
    assert accepted > 20 or kind != "replay"  # a random head proposes at random


def planned_again(engine, policy, todo, born, slot_of):
    """What the pure planner gives for every window, from the rounds before it. born: windows
    before a request's first one."""
    died = {round_.request: round_.window for round_ in engine.rounds if round_.finish}
    emitted = dict.fromkeys(born, 1)  # a prefill commits one
    start, plans = 0, []
    for window in range(engine.windows):
        live = [
            request
            for request in todo
            if request.id in died and born[request.id] <= window <= died[request.id]
        ]
        views = [
            SlotView(
                slot_of[request.id],
                held=policy.depth,
                room=request.max_new_tokens - emitted[request.id],
                position=len(request.prompt) + emitted[request.id] - 1,
                context=CONTEXT,
            )
            for request in live
        ]
        decision = policy.decide(
            sorted(views, key=lambda view: view.slot), rows=engine.rows, start=start
        )
        plans.append([(group.slot, group.rows) for group in decision.plan.groups])
        start = decision.plan.next_start
        for round_ in engine.rounds:
            emitted[round_.request] += round_.committed * (round_.window == window)
    return plans


@pytest.mark.parametrize("policy", [RotateGrow(), StaticK(1)], ids=str)
def test_with_a_queue_every_window_is_the_one_that_the_host_would_plan_from_the_same_state(
    target, texts, policy
):
    todo = requests(9)
    executor = planner(target, ReplayDrafter(texts, slots=SLOTS, context=CONTEXT), policy)
    engine = Engine(executor, slots=4, policy=policy, prefill_chunk=32)
    born: dict[str, int] = {}
    engine.on_tokens = lambda request, tokens: born.setdefault(request, engine.windows)
    for request in todo:
        engine.submit(request)
    engine.run()
    slot_of = {round_.request: round_.slot for round_ in engine.rounds}
    plans = [
        [(r.slot, r.rows) for r in engine.rounds if r.window == window]
        for window in range(engine.windows)
    ]
    assert plans == planned_again(engine, policy, todo, born, slot_of)
    assert len({tuple(plan) for plan in plans}) > 5


@pytest.mark.parametrize("captured", [pytest.param(False, marks=pytest.mark.slow), True])
def test_with_a_queue_every_request_has_the_tokens_it_has_alone(folder, target, texts, captured):
    todo = requests(9)
    for kind, policy in (("replay", RotateGrow()), ("mtp", StaticK(1)), ("lookup", RotateGrow())):
        engine = device(
            target,
            drafter_of(kind, folder, target, texts),
            policy,
            slots=3,
            todo=todo,
            captured=captured,
        )
        assert {name: tokens for name, (tokens, _) in ends(engine).items()} == {
            request.id: text[len(request.prompt) :]
            for request, text in zip(todo, in_order(todo, texts), strict=True)
        }


def in_order(todo, texts):
    return [
        next(text for text in texts if text[: len(request.prompt)] == request.prompt)
        for request in todo
    ]


def test_the_host_reads_one_window_late_and_a_slot_is_free_only_then(target, texts):
    executor = planner(target, ReplayDrafter(texts, slots=SLOTS, context=CONTEXT), RotateGrow())
    log = []
    advance, admit = executor.advance, executor.admit

    def launched(*caps, **side):
        work = advance(*caps, **side)
        number = len([entry for entry in log if entry[0] == "launch"])
        log.append(("launch", number))
        read = work.outcomes

        def outcomes():
            log.append(
                ("read", number, [outcome.slot for outcome in read() if outcome.committed.finish])
            )
            return read()

        work.outcomes = outcomes
        return work

    executor.advance = launched
    executor.admit = lambda slot, request: (log.append(("admit", slot)), admit(slot, request))
    run(executor, RotateGrow(), slots=2, todo=requests(4))
    for number in range(1, len([entry for entry in log if entry[0] == "launch"])):
        assert log.index(("launch", number)) < next(
            i for i, entry in enumerate(log) if entry[:2] == ("read", number)
        ), number
    steady = [entry[0] for entry in log[-9:-1]]
    assert steady == ["launch", "read"] * 4  # window n is launched before window n - 1 is read
    reads = [entry[1] for entry in log if entry[0] == "read"]
    assert reads == sorted(reads)
    taken = set()
    for entry in log:
        if entry[0] == "admit":
            assert entry[1] not in taken
            taken.add(entry[1])
        elif entry[0] == "read":
            taken -= set(entry[2])


class Launches(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "mtplab":
            self.names.append(func._schema.name.split("::")[1])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kind", "policy", "expected"), [("lookup", RotateGrow(), 2), ("none", StaticK(0), 1)]
)
def test_the_seam_is_two_launches_around_a_drafter_and_one_without(
    folder, target, texts, kind, policy, expected
):
    executor = planner(target, drafter_of(kind, folder, target, texts), policy)
    engine = Engine(executor, slots=2, policy=policy)
    for request in requests(1):
        engine.submit(request)
    for _ in range(3):
        engine.step()
    work = executor.advance({0: None}, policy.depth, speculative=True)
    with Launches() as launches, torch.inference_mode():
        work.verify()
        work.commit()
    assert [
        name
        for name in launches.names
        if name in ("advance_window", "row_argmax", "accept_prefix", "pack_window")
    ] == ["advance_window"] * expected


faults = st.dictionaries(
    st.tuples(st.sampled_from(["warm", "capture", "instantiate"]), st.integers(1, 8)),
    st.sampled_from([RuntimeError("boom"), MemoryError("full")]),
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(faults, st.integers(1, 3), st.integers(1, 3))
def test_captures_and_their_failures_never_change_a_window(
    target, texts, plan, capacity, capture_on
):
    todo = requests(4)
    drafter = ReplayDrafter(texts, slots=SLOTS, context=CONTEXT)
    executor = planner(target, drafter, RotateGrow())
    cache = LayoutCache(
        capacity, FailingGraphs(CpuGraphs(executor.dry_run), plan), capture_on=capture_on
    )
    mine = run(executor, RotateGrow(), slots=4, todo=todo, layout=Keyed("rows", cache))
    reference = host(target, drafter, RotateGrow(), slots=4, todo=todo)
    assert windows(mine) == windows(reference)
    assert ends(mine) == ends(reference)


def test_a_failed_window_ends_its_own_slots_and_keeps_what_was_computed(target, texts, capfd):
    todo = requests(SLOTS)
    drafter = ReplayDrafter(texts, slots=SLOTS, context=CONTEXT)
    executor = planner(target, drafter, RotateGrow())
    verify, calls = executor.verify, []

    def failing(bucket, bans):
        verify(bucket, bans)
        calls.append(executor.rows_in_work())
        if len(calls) == 14:
            raise RuntimeError("boom")

    executor.verify = failing
    engine = run(executor, RotateGrow(), slots=SLOTS, todo=todo)
    hit = [slot for slot, rows in enumerate(calls[13]) if rows]
    assert 0 < len(hit) < SLOTS
    failed = [done for done in engine.finished if done.finish == "error"]
    assert len(failed) == len(hit)
    alone = dict(zip([request.id for request in todo], in_order(todo, texts), strict=True))
    for done in engine.finished:
        whole = alone[done.id][len(done.prompt) :]
        assert done.tokens == (whole[: len(done.tokens)] if done.finish == "error" else whole)
    assert all(len(done.tokens) > 1 for done in failed)
    out, err = capfd.readouterr()
    assert out.count("ERR step failed") == err.count("ERR step failed") == 1


def test_a_cancelled_request_leaves_nothing_to_its_slot_s_next(target, texts):
    todo = requests(4)
    drafter = ReplayDrafter(texts, slots=SLOTS, context=CONTEXT)
    engine = Engine(
        planner(target, drafter, RotateGrow()), slots=2, policy=RotateGrow(), prefill_chunk=32
    )
    for request in todo:
        engine.submit(request)
    for _ in range(9):
        engine.step()
    engine.cancel("r0")
    engine.run()
    alone = dict(zip([request.id for request in todo], in_order(todo, texts), strict=True))
    for done in engine.finished:
        whole = alone[done.id][len(done.prompt) :]
        assert done.finish == "cancelled" if done.id == "r0" else done.tokens == whole
        assert done.tokens == whole[: len(done.tokens)]
    assert engine.scheduler.free == [0, 1]


def test_grants_hold_and_cost_no_token(target, texts):
    todo = requests(6)
    drafter = ReplayDrafter(texts, slots=SLOTS, context=CONTEXT)
    grants = Rotate(budget=3, backlog=2, share="window", parked="plain")
    engine = device(target, drafter, RotateGrow(), slots=4, todo=todo, grants=grants, captured=True)
    alone = dict(zip([request.id for request in todo], in_order(todo, texts), strict=True))
    assert {done.id: done.prompt + done.tokens for done in engine.finished} == alone
    for window in range(engine.windows):  # one holder at a time
        assert sum(round_.rows > 1 for round_ in engine.rounds if round_.window == window) <= 1
    assert len({round_.request for round_ in engine.rounds if round_.rows > 1}) > 2


def test_another_policy_or_window_than_the_device_s_is_refused(target, texts):
    for policy, rows in ((StaticK(0), 8), (RotateGrow(depth=0), 4)):
        with pytest.raises(ValueError, match="the device plans 8 rows by RotateGrow"):
            Engine(planner(target, None, RotateGrow(depth=0)), slots=2, policy=policy, rows=rows)
