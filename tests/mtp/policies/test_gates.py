"""Policies that measure, or follow one mean: worked by hand."""

from __future__ import annotations

import json

import pytest

from mtp.costs import LinearCost
from mtp.policies import B1Gate, EmaLength, MeasuredAB
from tests.support.policy_results import Player, slot_result, view, window_result

CHEAP = LinearCost(base=0.02, row=0.001, draft=0.0)  # 4 rows: 24 ms, 1 row: 21 ms
DEAR = LinearCost(base=0.005, row=0.02, draft=0.0)  # 4 rows: 85 ms, 1 row: 25 ms


def test_b1_gate_takes_plain_probes_first_then_samples_then_decides():
    player = Player(B1Gate(), costs=CHEAP)
    assert [player.window(True) for _ in range(10)] == [1, 1, 1, 1, 4, 4, 4, 4, 4, 4]
    report = player.policy.report()
    assert report["state"] == "on"
    assert report["reason"] == "speedup 3.50, on at 1.5, off at 1"  # 4 tokens * 21 ms / 24 ms
    json.dumps(report)


def test_b1_gate_vetoes_with_its_figures():
    player = Player(B1Gate(retry=0), costs=DEAR)
    assert [player.window(False) for _ in range(400)] == [1] * 4 + [4] * 4 + [1] * 392
    assert player.policy.report()["state"] == "vetoed"
    # 1 token * 25 ms / 85 ms
    assert player.policy.report()["reason"] == "speedup 0.29, on at 1.5, off at 1"


def test_b1_gate_between_the_two_is_the_default():
    even = LinearCost(base=0.01, row=0.02, draft=0.0)  # 4 tokens * 30 ms / 90 ms = 1.33
    for default_on, rows in ((True, 4), (False, 1)):
        player = Player(B1Gate(default_on=default_on), costs=even)
        assert [player.window(True) for _ in range(12)][-3:] == [rows] * 3
        assert player.policy.report()["state"] == "default"


def test_b1_gate_measures_again_after_a_veto_and_with_another_pairing():
    """Y02: it does not close for good."""
    player = Player(B1Gate(retry=20), costs=CHEAP)
    assert [player.window(False) for _ in range(8)] == [1] * 4 + [4] * 4
    assert [player.window(True) for _ in range(40)][-1] == 4
    gate = Player(B1Gate(retry=0), costs=DEAR).policy
    views = [view(0)]
    for _ in range(8):
        gate.decide(views, rows=8, start=0)
        gate.observe(window_result(slot_result("r0", [1], rows=4), seconds=1.0))
    assert gate.report()["state"] == "vetoed"
    gate.decide([*views, view(1)], rows=8, start=0)
    assert gate.report()["state"] == "profiling"
    assert gate.report()["reason"].startswith("the pairing has changed")


def test_measured_ab_keeps_the_winner_and_challenges_it_more_and_more_rarely():
    player = Player(MeasuredAB(settle=0, window=4, backoff=(1, 2)), costs=DEAR)
    rows = [player.window(False) for _ in range(48)]
    # incumbent 3 drafts, challenger 1 draft wins, holds 1; then it is challenged by 3 drafts and
    # wins, holds 2; and again the first window of a trial still has the drafts of the one before
    trials = [rows[begin + 1] for begin in range(0, 48, 4)]
    assert trials == [4, 2, 2, 2, 4, 2, 2, 2, 4, 2, 2, 2]
    report = player.policy.report()
    assert report["state"] == "1 drafts"
    assert report["reason"].startswith("3 challenges, 1 won")


def test_measured_ab_needs_a_lead():
    """Both arms run at the same speed: the incumbent stays."""
    same = LinearCost(base=0.02, row=0.0, draft=0.0)
    player = Player(MeasuredAB(settle=0, window=4), costs=same)
    for _ in range(12):
        player.window(False)
    assert player.policy.report()["state"] == "3 drafts"


def test_ema_length_by_hand():
    policy = EmaLength(settle=1, every=1, rate=1.0).open()  # the mean is the last window's
    moves = []
    for accepted in (3, 1, 0, 0, 1):
        policy.observe(window_result(slot_result("a", [0] * (accepted + 1), rows=4)))
        moves.append(policy.report()["level"])
    assert moves == [3, 3, 1, 1, 3]  # down at most 1 - 0.75, up above 1 - 0.5
    policy.observe(window_result(slot_result("a", [0], rows=4, finish="stop")))
    assert policy.report()["level"] == 3  # clipped: not looked at


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: EmaLength(levels=(1, 2)),
            "policy.levels is [1, 2], expected ascending draft counts among [1, 3]",
        ),
        (
            lambda: MeasuredAB(arms=(3, 3)),
            "policy.arms is [3, 3], expected two different draft counts among [0, 1, 3]",
        ),
        (
            lambda: MeasuredAB(backoff=()),
            "policy.backoff is [], expected trial lengths like [4, 16, 64]",
        ),
        (lambda: B1Gate(k=2), "policy.k is 2, expected one less than a group size: [1, 3]"),
        (lambda: B1Gate(on_at=0.5), "policy.on_at is 0.5, expected a number, at least 1"),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(ValueError) as wrong:  # noqa: PT011
        make()
    assert str(wrong.value) == message
