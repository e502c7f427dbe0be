"""The rules as functions: when a grant expires, who may wait, who is next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtp.grants import Rotate, backlog_admits, grant_expired, next_grant_index
from mtp.grants.entry import Entry
from mtp.request import Request

HIGH, NORMAL = 2, 1


@pytest.mark.parametrize(
    ("rounds", "budget", "waiting", "expired"),
    [
        (8, 8, 1, True),
        (7, 8, 1, False),
        (8, 8, 0, False),
        (900, 8, 1, True),
        (900, 8, 0, False),
        (900, 0, 3, False),
        (1, 1, 1, True),
    ],
)
def test_a_grant_expires_iff_the_budget_is_used_and_somebody_waits(
    rounds, budget, waiting, expired
):
    assert grant_expired(rounds, budget, waiting) is expired


@pytest.mark.parametrize(
    ("waiting", "budget", "backlog", "admitted"),
    [
        (0, 8, 2, True),
        (1, 8, 2, True),
        (2, 8, 2, False),
        (3, 8, 2, False),
        (0, 0, 2, False),
        (0, 8, 0, False),
        (4, 1, 5, True),
    ],
)
def test_the_backlog_admits_up_to_its_size_and_nobody_without_a_budget(
    waiting, budget, backlog, admitted
):
    assert backlog_admits(waiting, budget, backlog) is admitted


def test_the_backlog_is_two_by_default():
    assert [backlog_admits(waiting, 8) for waiting in range(4)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("entries", "index"),
    [
        ([(HIGH, 0), (NORMAL, 2)], 1),
        ([(HIGH, 0), (NORMAL, 1)], 0),
        ([(NORMAL, 2), (HIGH, 3)], 1),
        ([(NORMAL, 0), (NORMAL, 0)], 0),
        ([(NORMAL, 0), (HIGH, 0)], 1),
        ([(NORMAL, 2), (NORMAL, 2)], 0),
        ([(NORMAL, 3), (HIGH, 3)], 0),
        ([(NORMAL, 1), (HIGH, 0), (HIGH, 1)], 1),
        ([(5, 0)], 0),
        ([], None),
    ],
)
def test_the_next_is_the_overdue_else_the_highest_first_come_first_served(entries, index):
    assert next_grant_index(entries) == index


def test_endless_fresh_high_against_one_normal_normal_is_third():
    normal = (NORMAL, 0)
    picks = []
    for _ in range(3):
        picks.append(next_grant_index([normal, (HIGH, 0)]))
        normal = (NORMAL, normal[1] + 1)
    assert picks == [1, 1, 0]


def test_skip_cap_0_is_no_escalation():
    assert next_grant_index([(NORMAL, 10**6), (HIGH, 0)], skip_cap=0) == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=6),
    st.integers(0, 4),
)
def test_the_ring_picks_by_the_same_rule(entries, skip_cap):
    ring = [
        Entry(Request(f"{n}", (0,), 1, priority=priority), 0, skips=skips)
        for n, (priority, skips) in enumerate(entries)
    ]
    index = next_grant_index(entries, skip_cap)
    assert Rotate(skip_cap=skip_cap).pick(ring) == index
    overdue = [skips for _, skips in entries if 0 < skip_cap <= skips]
    priority, skips = entries[index]
    assert skips == max(overdue) if overdue else priority == max(p for p, _ in entries)


@pytest.mark.parametrize(
    "bad",
    [
        {"budget": -1},
        {"budget": 8.0},
        {"skip_cap": True},
        {"backlog": "2"},
        {"holders": 0},
        {"unit": "steps"},
        {"parked": None},
        {"share": "both"},
    ],
)
def test_bad_settings_name_the_key_and_the_value(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=rf"grant\.{name} is {value!r}, expected"):
        Rotate(**bad)


def test_slots_must_hold_the_holders_and_the_backlog():
    with pytest.raises(
        ValueError, match=r"slots is 3, expected at least 4 \(grant.holders 2 \+ grant.backlog 2\)"
    ):
        Rotate(holders=2).open(3)
    Rotate(holders=2).open(4)
