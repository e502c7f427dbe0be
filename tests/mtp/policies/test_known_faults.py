"""P03, Y02, Y04: what broke policies of systems like this one."""

from __future__ import annotations

from collections import Counter

import pytest

from mtp.costs import LinearCost
from mtp.policies import (
    Adaptive,
    B1Gate,
    Calibrated,
    Confidence,
    EmaLength,
    EwmaPolicy,
    Learning,
    LeastConfidentFirst,
    MeasuredAB,
    Policy,
    RotateAnchorsFirst,
    RotateGrow,
    ShadowBeta,
    StaticK,
    SurvivalTopk,
)
from tests.support.policy_results import Player, slot_result, view, window_result

COST = LinearCost(base=0.02, row=0.01)
EVERY: dict[str, Policy] = {
    "static_0": StaticK(0),
    "static_3": StaticK(3),
    "rotate_grow": RotateGrow(),
    "rotate_anchors_first": RotateAnchorsFirst(),
    "least_confident_first": LeastConfidentFirst(),
    "b1_gate": B1Gate(),
    "measured_ab": MeasuredAB(),
    "ema_length": EmaLength(),
    "survival_topk": SurvivalTopk(cost=COST),
    "ewma": EwmaPolicy(cost=COST),
    "shadow_beta": ShadowBeta(cost=COST),
    "confidence": Confidence(cost=COST),
    "calibrated": Calibrated(cost=COST),
    "adaptive": Adaptive(cost=COST),
}


def opened(name: str) -> Policy:
    policy = EVERY[name]
    return policy.open() if isinstance(policy, Learning) else policy


@pytest.mark.parametrize("name", EVERY)
def test_p03_somebody_runs_whenever_somebody_can(name: str) -> None:
    for rows in (1, 2, 3):
        decision = opened(name).decide([view(0, confidence=(0.9, 0.9, 0.9))], rows=rows, start=0)
        assert 1 <= decision.plan.rows <= rows
    policy = opened(name)
    only = policy.decide(
        [view(0, room=0), view(1, 3, confidence=(0.1,) * 3, cap=1), view(2, cap=0)], rows=8, start=0
    ).plan
    # caps 0 and 1, and no room
    assert [(group.slot, group.rows) for group in only.groups] == [(1, 1)]


@pytest.mark.parametrize("name", EVERY)
def test_p03_more_slots_than_rows_take_turns(name: str) -> None:
    """Five slots at a window of four rows: in ten windows nobody is left out of three in a row,
    and turns differ by at most one."""
    policy, start, skips, turns = opened(name), 0, Counter(), Counter()
    for _ in range(10):
        views = [view(slot, 0, skips=skips[slot]) for slot in range(5)]
        decision = policy.decide(views, rows=4, start=start)
        start = decision.plan.next_start
        entered = {group.slot for group in decision.plan.groups}
        turns.update(entered)
        for slot in range(5):
            skips[slot] = 0 if slot in entered else skips[slot] + 1
        assert max(skips.values()) <= 2
    assert sum(turns.values()) == 40
    assert max(turns.values()) - min(turns.values()) <= 1


@pytest.mark.parametrize("name", ["rotate_grow", "rotate_anchors_first"])
def test_p03_spare_rows_go_around(name: str) -> None:
    found = []
    for start in range(3):
        groups = (
            opened(name).decide([view(slot) for slot in range(3)], rows=8, start=start).plan.groups
        )
        found.append(tuple(group.rows for group in groups))
    assert found == [(4, 2, 2), (2, 4, 2), (2, 2, 4)]


@pytest.mark.parametrize(
    ("name", "lowest", "windows"),
    [
        ("ema_length", 2, 40),
        ("ewma", 1, 40),
        ("shadow_beta", 1, 40),
        ("calibrated", 1, 120),
        ("adaptive", 1, 20),
    ],
)
def test_y02_length_follows_acceptance_down_and_back_up(
    name: str, lowest: int, windows: int
) -> None:
    """20 windows with every draft accepted, `windows` with none, 100 with all: full, lowest,
    full again. The drafter's word is worth nothing here (always 0.5). `measured_ab` and
    `b1_gate` keep other hours: test_gates."""
    player = Player(EVERY[name], costs=LinearCost(base=0.02, row=0.012))
    assert [player.window(True) for _ in range(20)][-1] == 4
    assert [player.window(False) for _ in range(windows)][-1] == lowest
    assert [player.window(True) for _ in range(100)][-1] == 4


def test_y02_one_bad_stretch_of_ten_windows() -> None:
    """The input of the report, for ours: within ten windows without one accepted draft it is
    down to single rows."""
    player = Player(EVERY["adaptive"], costs=COST)
    assert [player.window(True) for _ in range(20)][-1] == 4
    assert [player.window(False) for _ in range(10)][-1] == 1
    assert [player.window(True) for _ in range(100)][-1] == 4


@pytest.mark.parametrize(
    "name", [name for name, policy in EVERY.items() if isinstance(policy, Learning)]
)
def test_y04_clipped_and_cancelled_windows_teach_nothing(name: str) -> None:
    """Two states that differ by clipped windows only decide alike, and report the same but for
    counted windows."""
    taught, clean = opened(name), opened(name)
    for policy in (taught, clean):
        policy.observe(
            window_result(slot_result("a", [1], rows=0, drafts=(5, 6, 7), confidence=(0.9,) * 3))
        )
    # matched 3, stop at token 2
    taught.observe(window_result(slot_result("a", [5, 7], rows=4, finish="stop")))
    taught.observe(window_result(slot_result("b", [1], rows=0, drafts=(5,))))
    # drafted 1 for want of room
    taught.observe(window_result(slot_result("b", [5, 6], rows=2, finish="length")))
    taught.observe(window_result(slot_result("c", [1], rows=0, drafts=(5, 6, 7))))
    taught.observe(window_result(slot_result("c", [], rows=4)))  # cancelled, nothing committed
    for request in ("a", "b", "c"):
        taught.release(request)
    clean.release("a")
    views = [
        view(0, 3, request="d", confidence=(0.8, 0.7, 0.6)),
        view(1, 3, request="e", confidence=(0.8, 0.7, 0.6)),
    ]
    assert taught.decide(views, rows=8, start=0) == clean.decide(views, rows=8, start=0)
    assert taught.report().get("verdicts") == clean.report().get("verdicts")
    assert taught.report().get("mean_accepted") == clean.report().get("mean_accepted")
