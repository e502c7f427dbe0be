"""Policies with drafters that fall silent, clocks that differ, and plans nobody can carry out (F
cases)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

import pytest
import torch

from mtp.buckets import Buckets
from mtp.costs import LinearCost
from mtp.drafters.protocol import Drafted
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.metrics import summarise
from mtp.policies import (
    Adaptive,
    B1Gate,
    Calibrated,
    Confidence,
    Decision,
    EmaLength,
    EwmaPolicy,
    LeastConfidentFirst,
    MeasuredAB,
    RotateAnchorsFirst,
    RotateGrow,
    ShadowBeta,
    StaticK,
    SurvivalTopk,
    check_decision,
)
from mtp.request import Request
from mtp.tape import Tape
from mtp.targets import load_target
from mtp.windows import Group, WindowPlan
from tests.support.checkpoints import write_qwen3_5
from tests.support.policy_results import view
from tests.support.replay_drafter import ReplayDrafter
from tests.support.tapes import random_tape

TOKENS = 160
FIXED = (StaticK(3), RotateGrow(), RotateAnchorsFirst(), LeastConfidentFirst(), EmaLength())
PLANNED = (
    SurvivalTopk(),
    EwmaPolicy(),
    ShadowBeta(),
    Confidence(),
    Calibrated(),
    Adaptive(),
)
TIMED = (B1Gate(), MeasuredAB(), MeasuredAB(arms=(1, 3)))
BY_COST = (B1Gate(measured=False), MeasuredAB(measured=False))


def name_of(policy):
    return type(policy).__name__


def mute(tape):
    """The same text with a drafter that proposes nothing."""
    return Tape(tape.tokens, (0,) * len(tape.tokens), ((),) * len(tape.tokens))


def engine_on(policy, *, cost=None, silent=False, rows=8):
    texts = {f"r{n}": random_tape(n, TOKENS, stops=False) for n in range(3)}
    tapes = {name: mute(tape) for name, tape in texts.items()} if silent else texts
    executor = TapeExecutor(tapes, limits=Limits(100, 400, frozenset()), cost=cost)
    engine = Engine(executor, slots=3, rows=rows, policy=policy)
    for name in tapes:
        engine.submit(Request(name, (1, 2), TOKENS, ignore_stop=True))
    return engine, texts


@pytest.mark.parametrize("policy", [*FIXED, *PLANNED, *BY_COST], ids=name_of)
def test_F12_windows_do_not_depend_on_what_they_took(policy):
    plans = []
    for cost in (LinearCost(), LinearCost(base=0.001, row=0.03)):
        engine, _ = engine_on(policy, cost=cost)
        engine.run()
        plans.append([(one.window, one.slot, one.rows, one.drafted) for one in engine.rounds])
    assert plans[0] == plans[1]


def test_F12_a_key_says_when_they_do():
    assert B1Gate().measured
    assert MeasuredAB().measured
    rows = []
    for measured in (True, False):  # windows are cheap, and believed to be dear
        policy = B1Gate(measured=measured, cost=LinearCost(base=0.001, row=0.03))
        engine, _ = engine_on(policy, cost=LinearCost(base=0.03, row=0.0))
        engine.run()
        rows.append(sum(one.rows for one in engine.rounds))
    assert rows[0] > rows[1] + 100


@pytest.mark.parametrize("policy", [*FIXED, *PLANNED, *TIMED], ids=name_of)
def test_F03_a_drafter_that_never_proposes_leaves_plain_decoding(policy):
    engine, texts = engine_on(policy, silent=True)
    done = {one.id: one for one in engine.run()}
    assert {name: done[name].tokens for name in texts} == {
        name: tape.tokens for name, tape in texts.items()
    }
    assert {one.rows for one in engine.rounds} == {1}
    figures = summarise(engine.rounds, engine.finished, decode_s=1.0, prefill_s=1.0)
    assert (figures["acceptance_rate"], figures["mean_acceptance_length"]) == (None, 1.0)
    assert figures["drafts_verified"] == 0
    if engine.learning:
        json.dumps(engine.learning.report(), allow_nan=False)


@pytest.mark.parametrize("policy", [*PLANNED, B1Gate()], ids=name_of)
def test_F03_a_policy_that_can_stops_asking_and_says_why(policy):
    engine, _ = engine_on(policy, silent=True)
    asked, window = Counter(), engine.executor.window

    def counted(groups, depth):
        asked[depth > 0] += 1
        return window(groups, depth)

    engine.executor.window = counted
    reasons = []
    while engine.step():
        reasons.append(engine.learning.report()["reason"])
    assert asked[True] < 50 < asked[False]
    words = "nobody had a draft in 32 windows" if policy == B1Gate() else "no draft in the last 3"
    assert any(words in reason for reason in reasons)


@pytest.mark.parametrize("policy", [Adaptive(), B1Gate(retry=8)], ids=name_of)
def test_F03_a_drafter_that_wakes_up_is_heard(policy):
    text = random_tape(0, 400, stops=False)
    silent, length = mute(text), 2 * len(text.tokens) // 5
    sure = tuple((0.5,) * 3 for _ in text.tokens)
    right = tuple(min(3, len(text.tokens) - 1 - n) for n in range(len(text.tokens)))
    tape = Tape(
        text.tokens,
        (*silent.matches[:length], *right[length:]),
        (*silent.confidence[:length], *sure[length:]),
    )
    executor = TapeExecutor({"a": tape}, limits=Limits(100, 1000, frozenset()))
    engine = Engine(executor, slots=1, policy=policy)
    engine.submit(Request("a", (1, 2), len(text.tokens), ignore_stop=True))
    engine.run()
    assert [one.rows for one in engine.rounds[-20:-2]] == [4] * 18


class Mute(ReplayDrafter):
    def advance(self, window, kept, picks, hidden, depth):
        drafts, confidence, counts = super().advance(window, kept, picks, hidden, depth)
        return Drafted(drafts, confidence, torch.zeros_like(counts))


def test_F03_the_same_on_a_model(tmp_path):
    device = torch.device("cpu")
    folder = write_qwen3_5(tmp_path)
    target = load_target(folder, slots=2, context=96, dtype=torch.float32, device=device)
    tokens = []
    for policy, drafter in (
        (StaticK(0), None),
        (RotateGrow(), Mute([], slots=2, context=96)),
        (Adaptive(), Mute([], slots=2, context=96)),
    ):
        executor = ModelExecutor(
            target, drafter, slots=2, largest_group=4, depth=3, buckets=Buckets(), device=device
        )
        engine = Engine(executor, slots=2, policy=policy)
        for n in range(2):
            engine.submit(Request(f"r{n}", (20 + n, 30, 40), 6, ignore_stop=True))
        tokens.append({one.id: one.tokens for one in engine.run()})
        assert {one.rows for one in engine.rounds} == {1}
    assert tokens[0] == tokens[1] == tokens[2]


@dataclass(frozen=True)
class Wild:
    """A policy of one plan."""

    groups: tuple[Group, ...]
    asks: int = 0
    sizes = (1, 2, 4)
    depth = 3

    def decide(self, slots, *, rows, start):
        return Decision(WindowPlan(self.groups, start), self.asks)


BAD = {
    "nobody": ((), 0, r"left the window empty although slots \[0, 1, 2\] can run"),
    "a slot that is not there": (
        (Group(7, 1),),
        0,
        r"gave groups to slots \[7\], expected some of \[0, 1, 2\], ascending",
    ),
    "a slot twice": ((Group(1, 1), Group(1, 1)), 0, r"gave groups to slots \[1, 1\]"),
    "slots out of order": ((Group(1, 1), Group(0, 1)), 0, r"gave groups to slots \[1, 0\]"),
    "a size that is none": (
        (Group(0, 3),),
        0,
        r"gave slot 0 3 rows, expected one of its sizes \[1, 2, 4\]",
    ),
    "no row": ((Group(0, 0),), 0, "gave slot 0 0 rows"),
    "more than it holds": (
        (Group(0, 1), Group(2, 4)),
        0,
        "gave slot 2 4 rows, expected at most 1: its limit is 158, and it holds 0 drafts",
    ),
    "more than the window": (
        (Group(0, 1), Group(1, 1), Group(2, 1)),
        0,
        "gave 3 rows in all, expected at most 2",
    ),
    "too many drafts": ((Group(0, 1),), 4, "asked for 4 drafts, expected at most its depth, 3"),
}


@pytest.mark.parametrize(("groups", "asks", "says"), BAD.values(), ids=BAD)
def test_F02_a_plan_that_nobody_can_carry_out_is_named(groups, asks, says):
    policy, views = Wild(groups, asks), [view(0), view(1), view(2, 0, room=158)]
    decision = policy.decide(views, rows=2, start=0)
    with pytest.raises(RuntimeError, match=says):
        check_decision(decision, views, policy, rows=2)


def test_F02_such_a_plan_is_never_carried_out():
    engine, _ = engine_on(Wild((Group(7, 1),)))
    engine.step()
    with pytest.raises(RuntimeError, match=r"gave groups to slots \[7\], expected some of \[0\]"):
        engine.step()
    assert engine.rounds == []


def test_F02_measured_ab_drafts_as_deep_as_its_deepest_arm():
    """Buffers are made for `depth` drafts: more were refused by the device, request by request."""
    assert MeasuredAB(arms=(1, 3)).depth == 3
    engine, _ = engine_on(MeasuredAB(arms=(1, 3), window=4))
    assert all(one.finish == "length" for one in engine.run())
    assert {one.drafted for one in engine.rounds} >= {1, 3}
