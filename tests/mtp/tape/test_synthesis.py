"""Synthetic tapes: the published figures are met, confidence is as good as asked for, and the
same seed gives the same text."""

from __future__ import annotations

import numpy as np
import pytest

from mtp.tape import Tape
from mtp.tape.published import PROFILES, REGIMES
from mtp.tape.synthesis import Synthesis

LONG = 60_000


def survival(tape, depth=7):
    matches = np.array(tape.matches[:-depth])
    return np.array([(matches > j).mean() for j in range(depth)])


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_s_survival_is_met(name):
    tape = Tape.drawn(Synthesis(name), LONG, seed=1)
    np.testing.assert_allclose(survival(tape)[:3], PROFILES[name].survival, atol=0.01)
    np.testing.assert_allclose(survival(tape), PROFILES[name].chain(7), atol=0.012)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("correlation", "spread"), [(0.0, 1.5), (0.95, 1.5), (0.8, 0.0), (0.8, 3.0)]
)
def test_the_survival_does_not_depend_on_how_difficulty_is_spread(correlation, spread):
    tapes = [
        Tape.drawn(
            Synthesis("flash-next-code", correlation=correlation, spread=spread, auc=0.5),
            LONG,
            seed,
        )
        for seed in range(3)
    ]
    mean = np.mean([survival(tape) for tape in tapes], axis=0)
    np.testing.assert_allclose(mean[:3], PROFILES["flash-next-code"].survival, atol=0.015)


def test_the_truth_is_what_happens():
    tape = Tape.drawn(Synthesis("switch"), LONG, seed=2)
    truth, matches = np.array(tape.truth)[:-7], np.array(tape.matches)[:-7]
    for depth in range(4):
        turn = matches >= depth  # drafts whose turn came
        p, right = truth[turn, depth], matches[turn] > depth
        for low, high in ((0.0, 0.4), (0.4, 0.7), (0.7, 0.9), (0.9, 1.0)):
            band = (p >= low) & (p < high)
            assert right[band].mean() == pytest.approx(p[band].mean(), abs=0.03), (depth, low)


def test_difficulty_lasts_as_long_as_asked():
    for correlation in (0.0, 0.5, 0.9):
        truth = np.array(
            Tape.drawn(Synthesis("prose", correlation=correlation, auc=0.5), LONG, seed=3).truth
        )
        first = np.log(truth[:, 0] / (1 - truth[:, 0]))
        assert np.corrcoef(first[:-1], first[1:])[0, 1] == pytest.approx(correlation, abs=0.02)
        # the second draft at i and the first at i + 1 aim at the same token
        second = np.log(truth[:, 1] / (1 - truth[:, 1]))
        assert np.corrcoef(second[:-1], first[1:])[0, 1] == pytest.approx(1.0, abs=1e-6)


def auc(score, right):
    order = np.argsort(score)
    ranked = right[order]
    return (ranked * np.cumsum(~ranked)).sum() / (right.sum() * (~right).sum())


@pytest.mark.parametrize("regime", ["code", "prose", "switch", "agentic"])
@pytest.mark.parametrize("asked", [0.5, 0.6, 0.75])
def test_the_confidence_tells_right_from_wrong_as_well_as_asked(regime, asked):
    tape = Tape.drawn(Synthesis(regime, auc=asked), LONG, seed=4)
    confidence, right = np.array(tape.confidence)[:-7, 0], np.array(tape.matches[:-7]) > 0
    assert auc(confidence, right) == pytest.approx(asked, abs=0.012)
    if asked == 0.5:
        assert confidence.std() > 0.05  # it looks like one


@pytest.mark.slow
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_slope_1_and_offset_0_are_calibrated_and_others_are_off_as_told(depth):
    matches = np.array(Tape.drawn(Synthesis("prose"), LONG, seed=5).matches[:-7])
    turn = matches >= depth
    right = matches[turn] > depth
    plain = np.array(Tape.drawn(Synthesis("prose"), LONG, seed=5).confidence)[:-7][turn, depth]
    for low, high in ((0.2, 0.5), (0.5, 0.7), (0.7, 0.85), (0.85, 1.0)):
        band = (plain >= low) & (plain < high)
        assert right[band].mean() == pytest.approx(plain[band].mean(), abs=0.03)
    sure = np.array(
        Tape.drawn(Synthesis("prose", slope=2.0, offset=-0.5), LONG, seed=5).confidence
    )[:-7][turn, depth]
    np.testing.assert_allclose(
        np.log(sure / (1 - sure)), 2 * np.log(plain / (1 - plain)) - 0.5, atol=0.01
    )


def test_the_same_seed_gives_the_same_tape_and_another_another():
    first = Tape.synthetic("agentic", length=50, seed=6)
    assert first == Tape.drawn(Synthesis("agentic"), 50, 6)
    assert first != Tape.drawn(Synthesis("agentic"), 50, 7)
    assert Tape.drawn(Synthesis("agentic"), 50, (6, 1)) != Tape.drawn(
        Synthesis("agentic"), 50, (6, 2)
    )


def test_a_chain_says_nothing_about_tokens_past_the_end():
    for seed in range(20):
        tape = Tape.drawn(Synthesis("code"), 12, seed)
        assert all(n <= 11 - place for place, n in enumerate(tape.matches))
        assert {len(row) for row in tape.confidence} == {len(row) for row in tape.truth} == {7}


def test_a_mixed_request_is_of_one_kind_and_a_switching_one_is_not():
    """By what an oracle knows: without spread, p is the part's own."""
    kinds = {
        name: [
            len({row[0] for row in Tape.drawn(Synthesis(name, spread=0, auc=0.5), 400, seed).truth})
            for seed in range(20)
        ]
        for name in REGIMES
    }
    assert set(kinds["mixed"]) == {1}
    assert min(kinds["switch"]) == 2
    assert set(kinds["bursty"]) <= {1, 2}
    assert max(kinds["agentic"]) == 3
    one = {
        Tape.drawn(Synthesis("mixed", spread=0, auc=0.5), 5, seed).truth[0][0] for seed in range(20)
    }
    assert len(one) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regime": "poetry"}, "regime is 'poetry', expected one of code, prose"),
        ({"depth": 8}, "depth is 8, expected an integer, 1 to 7"),
        ({"depth": True}, "depth is True"),
        ({"correlation": 1.0}, "correlation is 1.0, expected 0 to 0.999"),
        ({"spread": -1}, "spread is -1, expected 0 to 5"),
        ({"auc": 0.4}, "auc is 0.4, expected 0.5 to 1"),
        (
            {"auc": 0.99},
            r"auc is 0.99, expected 0.5 to 0.8\d: what the true probabilities reach in regime code",
        ),
        ({"auc": float("nan")}, "auc is nan"),
    ],
)
def test_bad_settings_name_the_value(settings, message):
    with pytest.raises(ValueError, match=message):
        Synthesis(**({"regime": "code"} | settings))
