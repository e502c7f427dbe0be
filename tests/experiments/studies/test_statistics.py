"""Intervals of paired ratios and Holm's correction."""

from itertools import product
from math import factorial

import numpy as np
import pytest

from experiments.studies.statistics import Speed, holm, paired_ratio


def exact_bootstrap(arm: Speed, other: Speed) -> tuple[float, float, float]:
    """Every multiset of requests with its probability: the 95% interval and P(ratio >= 1)."""
    size = len(arm.tokens)
    ratios, weights = [], []
    for counts in product(range(size + 1), repeat=size):
        if sum(counts) == size:

            def total(values, counts=counts):
                return sum(count * value for count, value in zip(counts, values, strict=True))

            ratios.append(
                total(arm.tokens) / total(arm.seconds) * total(other.seconds) / total(other.tokens)
            )
            weights.append(
                factorial(size) / np.prod([factorial(count) for count in counts]) / size**size
            )
    order = np.argsort(ratios)
    ratios, shares = np.array(ratios)[order], np.cumsum(np.array(weights)[order])
    low, high = (ratios[np.searchsorted(shares, share)] for share in (0.025, 0.975))
    return float(low), float(high), float(np.array(weights)[order][ratios >= 1].sum())


def test_the_bootstrap_is_the_exact_one_up_to_sampling():
    arm = Speed([10, 20, 15, 12], [1.0, 2.2, 1.4, 1.5])
    other = Speed([11, 19, 15, 12], [1.2, 1.9, 1.6, 1.4])
    found = paired_ratio(arm, other, resamples=40_000)
    low, high, p = exact_bootstrap(arm, other)
    assert found.value == pytest.approx(57 / 6.1 * 6.1 / 57)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.006)
    assert found.p_loss == pytest.approx(p, abs=0.01)


def test_pairing_takes_out_what_both_share():
    """Requests differ ten times as much as the arms do; the ratio is still known to be 1.02."""
    seconds = [1.0, 5.0, 10.0, 2.0, 7.0, 3.0]
    arm, other = Speed([100] * 6, seconds), Speed([100] * 6, [1.02 * second for second in seconds])
    found = paired_ratio(arm, other)
    assert (found.low, found.value, found.high) == pytest.approx((1.02, 1.02, 1.02))
    assert found.p_loss == 1
    assert paired_ratio(other, arm).p_loss < 0.001


def test_holm_by_hand():
    """0.01 <= 0.05/4, 0.013 <= 0.05/3, 0.03 > 0.05/2: it stops there, although 0.04 alone would
    pass."""
    assert holm({"a": 0.03, "b": 0.013, "c": 0.01, "d": 0.04}) == ["c", "b"]
    assert holm({"a": 0.02, "b": 0.9, "c": 0.9}) == []
    assert holm({"only": 0.05}) == ["only"]
    assert holm({}) == []
