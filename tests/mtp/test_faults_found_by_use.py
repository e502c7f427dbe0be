"""Inputs from outside a step that once cost somebody else a token or a reason (N and F cases)."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch

from mtp.buckets import Buckets
from mtp.costs import LinearCost
from mtp.drafters.protocol import Drafted
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.execution.tape import TapeExecutor
from mtp.files import whole
from mtp.policies import Adaptive, RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.replay_drafter import ReplayDrafter
from tests.support.tapes import LIMITS, engine_of, expected, random_tape

CPU = torch.device("cpu")


def workload() -> dict[Request, object]:
    return {Request(f"r{n}", (1, 2), 12, ignore_stop=True): random_tape(n) for n in range(3)}


@pytest.mark.parametrize("at", range(1, 30))
@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
def test_F01_a_callback_that_raises_costs_nobody_else_a_token(at, kind, capfd):
    requests, calls, hit = workload(), [], []

    def on_tokens(name, tokens):
        calls.append((name, list(tokens)))
        if len(calls) == at:
            hit.append(name)
            raise kind("the caller's own fault")

    engine = engine_of(requests, RotateGrow(), slots=3, on_tokens=on_tokens)
    for _ in range(200):
        try:
            if not engine.step():
                break
        except KeyboardInterrupt:
            continue
    else:
        raise AssertionError("the engine never comes to an end")
    done = {one.id: one for one in engine.finished}
    assert len(engine.finished) == 3
    assert sorted(engine.scheduler.free) == [0, 1, 2]
    for request, tape in requests.items():
        if request.id in hit and kind is RuntimeError:
            assert done[request.id].finish == "error"
            assert "on_tokens: RuntimeError: the caller's own fault" in done[request.id].error
        else:
            assert (list(done[request.id].tokens), done[request.id].finish) == expected(
                request, tape
            )


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    folder = write_qwen3_5(tmp_path_factory.mktemp("outside"))
    return load_target(folder, slots=2, context=96, dtype=torch.float32, device=CPU)


def run(target, drafter, policy):
    executor = ModelExecutor(
        target, drafter, slots=2, largest_group=4, depth=3, buckets=Buckets(), device=CPU
    )
    engine = Engine(executor, slots=2, policy=policy)
    for n in range(3):
        engine.submit(Request(f"r{n}", tuple(range(20 + n, 30 + n)), 24, ignore_stop=True))
    engine.run()
    return engine, {done.id: done for done in engine.finished}


class Beyond(ReplayDrafter):
    """Every third draft is an id that the target does not have."""

    def advance(self, window, kept, picks, hidden, depth):
        drafts, confidence, counts = super().advance(window, kept, picks, hidden, depth)
        if depth == 3:
            drafts = drafts.clone()
            drafts[0, 2], drafts[1, 1] = 2**30, -5
        return Drafted(drafts, confidence, counts)


def test_F02_a_draft_outside_the_vocabulary_is_dropped_with_what_follows(target):
    _, plain = run(target, None, StaticK(0))
    texts = [done.prompt + done.tokens for done in plain.values()]
    engine, done = run(target, Beyond(texts, slots=2, context=96), RotateGrow())
    assert {name: one.tokens for name, one in done.items()} == {
        name: one.tokens for name, one in plain.items()
    }
    assert all(one.finish == "length" for one in done.values())
    most = {slot: max(r.drafted for r in engine.rounds if r.slot == slot) for slot in (0, 1)}
    assert most == {0: 1, 1: 1}  # two drafts held make a group of two rows
    assert any(round_.accepted for round_ in engine.rounds)


def test_F03_every_request_names_what_its_drafter_was_lost_to(capfd):
    class Dead:
        def clear(self, slot):
            pass

        def advance(self, slots):
            raise RuntimeError("the head is missing")

    requests = {Request(f"r{n}", (1, 2), 6, ignore_stop=True): random_tape(n) for n in range(30)}
    tapes = {request.id: tape for request, tape in requests.items()}
    executor = TapeExecutor(tapes, limits=LIMITS, drafter=Dead())
    engine = Engine(executor, slots=4, policy=RotateGrow())
    for request in requests:
        engine.submit(request)
    assert all("the head is missing" in done.speculation_disabled for done in engine.run())


@pytest.mark.parametrize("refit", [False, True])
def test_F12_adaptive_plans_the_same_windows_whatever_they_took(refit):
    requests = {Request(f"r{n}", (1, 2), 40, ignore_stop=True): random_tape(n) for n in range(3)}
    tapes = {request.id: tape for request, tape in requests.items()}
    plans = []
    for cost in (LinearCost(), LinearCost(base=0.001, row=0.03)):
        executor = TapeExecutor(tapes, limits=LIMITS, cost=cost)
        engine = Engine(executor, slots=3, policy=Adaptive(refit=refit))
        for request in requests:
            engine.submit(request)
        engine.run()
        plans.append([(round_.window, round_.slot, round_.rows) for round_ in engine.rounds])
    assert (plans[0] == plans[1]) is not refit  # a key says when time may enter a plan
    assert Adaptive().refit is False


def test_N20_a_stop_id_outside_the_vocabulary_is_refused():
    request = Request("a", (1, 2), 6, stop_ids={LIMITS.vocab})
    engine = engine_of({}, RotateGrow(), slots=1)
    with pytest.raises(ValueError, match=r"stop id 100 is outside the vocabulary \(0 to 99\)"):
        engine.submit(request)


def write_often(file: Path, times: int) -> None:
    for number in range(times):
        with whole(file) as aside:
            aside.write_text(str(number) * 50)


def test_N08_writers_with_the_same_process_id_never_meet(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 1)
    file = tmp_path / "shared.json"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_often, args=(file, 200)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [one.name for one in tmp_path.iterdir()] == ["shared.json"]


def test_N08_a_write_that_fails_leaves_nothing(tmp_path):
    file = tmp_path / "a.json"
    (tmp_path / "a.json").mkdir()  # it cannot be renamed over a folder
    with pytest.raises(OSError, match=r"a\.json"), whole(file) as aside:
        aside.write_text("half")
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
