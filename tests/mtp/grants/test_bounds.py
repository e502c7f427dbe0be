"""The waiting bounds, by exhaustive search: nothing that clients do exceeds them, and something
reaches them.

C = backlog, K = skip cap, B = budget: skips <= K+C-1, gap <= (K+C-1)*B rounds, first token <=
(K+C)*B rounds.
"""

from __future__ import annotations

import pytest

from tests.support.grant_adversary import Adversary

ALL = [(backlog, skip_cap) for backlog in (1, 2, 3) for skip_cap in (1, 2, 3, 4)]
SIZES = [
    pytest.param(*size, marks=pytest.mark.slow) if size in ((3, 3), (3, 4)) else size
    for size in ALL
]


def search(backlog, skip_cap, budget, priorities, cancels):
    return Adversary(
        backlog=backlog, skip_cap=skip_cap, budget=budget, priorities=priorities, cancels=cancels
    ).search()


def meets_the_bounds(worst, backlog, skip_cap, budget):
    picks = skip_cap + backlog - 1
    assert (worst.skips, worst.gap, worst.first) == (picks, picks * budget, (picks + 1) * budget)
    assert worst.ring == backlog + 1


@pytest.mark.parametrize(("budget", "cancels"), [(1, False), (1, True), (2, False)])
@pytest.mark.parametrize("priorities", [2, 3])
@pytest.mark.parametrize(("backlog", "skip_cap"), SIZES)
def test_skips_gaps_and_first_tokens_never_exceed_their_bounds_and_reach_them(
    backlog, skip_cap, priorities, budget, cancels
):
    meets_the_bounds(
        search(backlog, skip_cap, budget, priorities, cancels), backlog, skip_cap, budget
    )


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "priorities"), [(2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize(("backlog", "skip_cap"), SIZES)
def test_the_bounds_hold_for_longer_grants_with_cancels(backlog, skip_cap, priorities, budget):
    meets_the_bounds(search(backlog, skip_cap, budget, priorities, True), backlog, skip_cap, budget)


@pytest.mark.parametrize(("backlog", "skip_cap"), SIZES)
def test_with_a_skip_cap_the_bounds_hold_for_any_order(backlog, skip_cap):
    """So they hold for every discipline, whatever it prefers."""
    meets_the_bounds(search(backlog, skip_cap, 1, None, False), backlog, skip_cap, 1)


@pytest.mark.parametrize("budget", [1, 2, 3])
@pytest.mark.parametrize(("backlog", "skip_cap"), SIZES)
def test_with_equal_priorities_a_gap_is_at_most_a_grant_of_each_other(backlog, skip_cap, budget):
    worst = search(backlog, skip_cap, budget, 1, backlog < 3)
    assert (worst.gap, worst.first) == (backlog * budget, backlog * budget)


def test_the_default_bounds():
    """24 rounds between two grants, 32 to the first token, 16 with equal priorities; B = 8, C =
    2, K = 2."""
    worst = search(2, 2, 8, 2, False)
    assert (worst.gap, worst.first) == (24, 32)
    assert search(2, 2, 8, 1, False).gap == 16
