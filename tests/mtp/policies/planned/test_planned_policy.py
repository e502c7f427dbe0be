"""Planning policies: hand-worked windows, determinism, state of requests, and what they reach on
synthetic texts."""

from __future__ import annotations

import json

import pytest

from mtp.costs import LinearCost, StaircaseCost
from mtp.policies import (
    Adaptive,
    Calibrated,
    Confidence,
    EwmaPolicy,
    Hindsight,
    Learning,
    LeastConfidentFirst,
    OracleP,
    Policy,
    RotateAnchorsFirst,
    RotateGrow,
    ShadowBeta,
    StaticK,
    SurvivalTopk,
    TapeOracle,
)
from mtp.policies.planned.cost_table import CostTable
from mtp.policies.planned.depth import best_depth
from mtp.tape import Tape
from mtp.windows import SlotView
from tests.mtp.policies.test_known_faults import EVERY
from tests.support.policy_results import Player, slot_result, view, window_result
from tests.support.policy_trial import engine_on, texts, tokens_per_s

COST = LinearCost(base=0.02, row=0.005, draft=0.0)  # one row alone: 25 ms


def rows_of(policy: Policy, views, rows: int = 8, start: int = 0) -> dict[int, int]:
    live = policy.open() if isinstance(policy, Learning) else policy
    groups = live.decide(views, rows=rows, start=start).plan.groups
    return {group.slot: group.rows for group in groups}


def test_rotate_anchors_first_by_hand():
    policy = RotateAnchorsFirst()
    # rotate_grow: 4 slots, 2 rows each
    assert rows_of(policy, [view(slot) for slot in range(8)]) == dict.fromkeys(range(8), 1)
    assert rows_of(policy, [view(slot) for slot in range(5)]) == {0: 2, 1: 2, 2: 2, 3: 1, 4: 1}
    assert rows_of(policy, [view(slot) for slot in range(3)], start=1) == {0: 2, 1: 4, 2: 2}
    assert rows_of(policy, [view(0), view(1, held=0), view(2, held=2)]) == {0: 4, 1: 1, 2: 2}


def test_least_confident_first_by_hand():
    views = [
        view(0, confidence=(0.9, 0.9, 0.9)),
        view(1, confidence=(0.2, 0.2, 0.2)),
        view(2, confidence=(0.5, 0.5, 0.5)),
    ]
    assert rows_of(LeastConfidentFirst(), views) == {0: 2, 1: 4, 2: 2}


def test_confidence_by_hand():
    """mu before the first window: 2 tokens / 30 ms = 67 a second, so a row costs 0.33 tokens."""
    views = [view(0, confidence=(0.9, 0.9, 0.9)), view(1, confidence=(0.5, 0.4, 0.3))]
    assert rows_of(Confidence(cost=COST).open(), views) == {0: 4, 1: 2}
    assert rows_of(
        Confidence(cost=COST).open(),
        [view(0, confidence=(0.3, 0.9, 0.9)), view(1, confidence=(0.9, 0.2, 0.9))],
    ) == {0: 1, 1: 2}


def test_survival_topk_by_hand():
    """Tokens per 20 + 5 * rows ms of this window: ranked 1, 1, 0.9, 0.81, 0.73, 0.5; each row
    must beat 54 to 70 a second * 5 ms."""
    views = [view(0, confidence=(0.9, 0.9, 0.9)), view(1, confidence=(0.5, 0.4, 0.3))]
    assert rows_of(SurvivalTopk(cost=COST).open(), views) == {0: 4, 1: 2}
    dear = LinearCost(base=0.001, row=0.02)
    # 2 tokens / 41 ms beat 1 / 21 and 2.9 / 61
    assert rows_of(SurvivalTopk(cost=dear).open(), views) == {
        0: 1,
        1: 1,
    }


def test_learnt_rates_by_hand():
    """Ewma: 0.75 + 0.1 * (1 - 0.75) after one hit. Beta: (0.97 * 3 + 1) / (0.97 * 4 + 1)."""
    for policy, expected in ((EwmaPolicy(cost=COST), 0.775), (ShadowBeta(cost=COST), 3.91 / 4.88)):
        policy = policy.open()
        policy.observe(window_result(slot_result("r0", [1], rows=0, drafts=(5, 6, 7))))
        policy.observe(window_result(slot_result("r0", [5, 9], rows=2)))
        estimator = policy.estimator
        assert estimator.survival(view(0))[0] == pytest.approx(expected)


def test_calibration_learns_that_confidence_is_upside_down():
    policy = Calibrated(cost=COST).open()
    for number in range(400):
        good = number % 2 == 0
        policy.observe(
            window_result(
                slot_result(
                    "r0",
                    [7 if good else 8],
                    rows=1,
                    drafts=(7,),
                    confidence=(0.1 if number % 2 else 0.9,),
                )
            )
        )
    high, low = (
        policy.estimator.survival(view(0, held=1, confidence=(said,)))[0] for said in (0.9, 0.1)
    )
    assert high < 0.2 < 0.8 < low


def test_useless_confidence_leaves_the_own_rate():
    """Ours falls back to the request's own acceptance: nothing is gained by 0.99 over 0.01."""
    policy = Adaptive(cost=COST).open()
    for number in range(3000):
        said = 0.95 if (number * 7919) % 13 < 6 else 0.3
        right = (number * 104729) % 10 < 6
        policy.observe(
            window_result(
                slot_result("r0", [7 if right else 8], rows=1, drafts=(7,), confidence=(said,))
            )
        )
    high, low = (
        policy.estimator.survival(view(0, held=1, confidence=(said,)))[0] for said in (0.95, 0.3)
    )
    assert abs(high - low) < 0.15
    assert 0.4 < low < 0.75


def test_hindsight_and_oracle_by_hand():
    tape = Tape(
        (1, 2, 3, 4, 5),
        (3, 0, 1, 0, 0),
        truth=((0.9, 0.9, 0.9), (0.1, 0.1, 0.1), (0.6, 0.2, 0.1), (0.5,) * 3, (0.5,) * 3),
    )
    oracle = TapeOracle({"r0": tape})
    for policy, rows in (
        (Hindsight(cost=COST, oracle=oracle), [4, 1, 2]),
        (OracleP(cost=COST, oracle=oracle), [4, 1, 2]),
    ):
        opened, found = policy.open(), []
        opened.observe(window_result(slot_result("r0", [1], rows=0)))
        for token in (2, 3, 4):
            found.append(rows_of(opened, [view(0)])[0])
            opened.observe(window_result(slot_result("r0", [token], rows=found[-1])))
        assert found == rows
    with pytest.raises(ValueError, match="is null, expected the tapes"):
        OracleP()
    with pytest.raises(ValueError, match="only these know the true probabilities"):
        OracleP(oracle=TapeOracle({}, probabilities=False))


PLANNING = [name for name, policy in EVERY.items() if isinstance(policy, Learning)]


@pytest.mark.parametrize("name", PLANNING)
def test_the_same_run_twice(name: str) -> None:
    tapes = texts("switch", 3, 120, 5)
    runs = []
    for _ in range(2):
        engine = engine_on(EVERY[name], tapes, COST, slots=2)
        engine.run()
        runs.append((engine.rounds, engine.learning.report()))
        json.dumps(engine.learning.report())  # plain values
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", PLANNING)
def test_a_park_of_100_windows_and_1000_requests(name: str) -> None:
    """What is known of a request survives while others run, and dies with it; the configured
    object never learns."""
    policy = EVERY[name].open()
    for _ in range(30):
        policy.observe(
            window_result(slot_result("r0", [5], rows=2, drafts=(5, 5, 5), confidence=(0.9,) * 3))
        )
    before = policy.estimator.survival(view(0)) if hasattr(policy, "estimator") else None
    for number in range(1000):
        request = f"other-{number}"
        policy.observe(window_result(slot_result(request, [1], rows=0, drafts=(2, 2, 2))))
        policy.decide([view(1, request=request)], rows=8, start=0)
        policy.observe(window_result(slot_result(request, [1], rows=2, drafts=(2, 2, 2))))
        policy.release(request)
    if before is not None:
        assert policy.estimator.survival(view(0)) == before
        assert policy.report()["requests_held"] == 1
        assert len(policy.estimator.shadow) == 1
        policy.release("r0")
        assert policy.report()["requests_held"] == 0
        assert len(policy.estimator.shadow) == 0
    assert EVERY[name].open().report() == EVERY[name].open().report()


@pytest.mark.parametrize(("draft", "probed"), [(0.0001, [56, 88, 120]), (0.0008, [64, 104])])
def test_a_probe_every_32_windows_or_for_at_most_a_300th_of_the_time(draft, probed):
    """Nothing pays here, so nothing is drafted but for the first 24 windows and probes. A probe
    of 3 * 0.8 ms beside windows of 20 ms costs 12%: every 40 windows that is 0.3%."""
    player = Player(ShadowBeta(cost=LinearCost(base=0.0, row=0.02, draft=draft)))
    depths = []
    for _ in range(128):
        player.window(False)
        depths.append(player.held)
    assert depths[:24] == [3] * 24
    assert [
        number + 1 for number, depth in enumerate(depths) if depth == 3 and number >= 24
    ] == probed


def test_nothing_is_drafted_where_anchors_fill_the_window():
    slots = [SlotView(slot, 3, 50, 10, 1000) for slot in range(8)]
    assert ShadowBeta().open().decide(slots, rows=8, start=0).depth == 0
    assert ShadowBeta().open().decide(slots, rows=16, start=0).depth == 3  # the first windows


def test_depth_sees_a_staircase_as_it_is():
    """One slot, windows padded to 4 or 8 rows: up to four rows cost the same, so deep drafts of
    little hope are worth their rows. On the line through both ends of the stairs they are not."""
    line = LinearCost(base=1.0, row=0.25, draft=0.05)
    chosen = []
    for cost in (line, StaircaseCost(line, (4, 8))):
        shape = CostTable.of(cost, 8, 0)
        chosen.append(
            best_depth(
                [[(0.6, 0.15, 0.05)]], cost, shape, 0.8, rows=8, entered=1, sizes=(1, 2, 4), most=3
            )
        )
    assert chosen == [1, 3]


def test_self_consistent_mu():
    """The price of a second is of the plans' own costs: a believed cost off by any factor gives
    the same windows."""
    tapes, runs = texts("code", 2, 200, 3), []
    for factor in (1.0, 1.4):
        cost_model = LinearCost(base=0.02 * factor, row=0.005 * factor, draft=0.001 * factor)
        engine = engine_on(ShadowBeta(cost=cost_model), tapes, COST)
        engine.run()
        runs.append([entry.rows for entry in engine.rounds])
    assert runs[0] == runs[1]


def test_adaptive_beats_static_and_the_published_policy_where_work_is_mixed():
    cost = LinearCost()  # b / a = 0.23
    for regime, least in (("mixed", 1.03), ("switch", 1.02)):
        tapes = texts(regime, 6, 500, 11)
        best = max(
            tokens_per_s(policy, tapes, cost)
            for policy in (StaticK(0), StaticK(1), StaticK(3), RotateGrow())
        )
        assert tokens_per_s(Adaptive(cost=cost), tapes, cost) > least * best


def test_a_slot_that_does_not_pay_still_enters_at_the_skip_cap():
    dear = LinearCost(base=0.001, row=0.001, slot=0.05)
    hopeful, policy = view(0, confidence=(0.99, 0.99, 0.99)), Confidence(cost=dear).open()
    for _ in range(5):
        assert rows_of(policy, [hopeful]) == {0: 4}  # 4 tokens / 55 ms: a slot costs 3.6 tokens
    assert rows_of(policy, [hopeful, view(1, held=0, skips=1)]) == {0: 4}
    assert rows_of(policy, [hopeful, view(1, held=0, skips=2)]) == {0: 4, 1: 1}
