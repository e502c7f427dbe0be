"""Each discipline by what it is for; all drive the same ring."""

from __future__ import annotations

import random

import pytest

from mtp.grants import Drr, Fifo, Rotate, Srpt, Strict, Vtc
from mtp.grants.entry import Entry
from mtp.grants.schedule import Job, play
from mtp.request import Request


def ring_of(*entries):
    return [
        Entry(
            Request(f"{n}", (0,), options.pop("max_new", 9), priority=options.pop("priority", 1)),
            0,
            **options,
        )
        for n, options in enumerate(entries)
    ]


def served(discipline, speeds, rounds, lengths=None):
    """Requests that arrive together and emit speeds[n] tokens in each of their rounds: the ring
    after so many rounds."""
    ring = discipline.open(9)
    left = dict(enumerate(lengths or [10**9] * len(speeds)))
    for n in left:
        ring.place(Request(f"{n}", (0,), left[n]), lambda request: False)
    for _ in range(rounds):
        (holder,) = ring.holding
        n = int(holder)
        left[n] -= speeds[n]
        ring.round(holder, speeds[n], 0.01, over=left[n] <= 0)
        if left[n] <= 0:
            ring.leave(holder)
        list(ring.promote(lambda request: False))
    return ring


def tokens(ring, name):
    return sum(grant.tokens for grant in ring.log if grant.request == name)


def test_fifo_ignores_priorities():
    jobs = [Job("a", 4), Job("low", 2, priority=0), Job("high", 2, priority=9)]
    assert [name for name, _ in play(Fifo(budget=2).open(3), jobs)] == ["a", "low", "high", "a"]


def test_strict_passes_the_lowest_over_for_ever_and_rotate_does_not():
    jobs = [Job("high", 100, priority=2), Job("low", 2), Job("higher", 100, priority=2)]
    strict = [name for name, _ in play(Strict(budget=2).open(3), jobs)]
    rotate = [name for name, _ in play(Rotate(budget=2).open(3), jobs)]
    assert strict[-1] == "low"
    assert rotate.index("low") == 3


def test_strict_is_first_come_first_served_within_a_priority():
    assert (
        Strict().pick(ring_of({"priority": 1}, {"priority": 3, "skips": 9}, {"priority": 3})) == 1
    )


def test_drr_gives_equal_tokens_where_rounds_do_not():
    by_rounds, by_tokens = (
        served(Fifo(budget=4), [1, 4, 2], 3000),
        served(Drr(budget=8), [1, 4, 2], 3000),
    )
    assert tokens(by_rounds, "1") > 3.5 * tokens(by_rounds, "0")
    shares = [tokens(by_tokens, name) for name in "012"]
    assert max(shares) - min(shares) <= 2 * (8 + 4)


def test_drr_carries_a_debt_beyond_a_whole_quantum():
    shares = [tokens(served(Drr(budget=1), [1, 4], 3000), name) for name in "01"]
    assert max(shares) - min(shares) <= 2 * 5


def test_drr_a_turn_is_shorter_by_what_the_last_one_used_too_much():
    (entry,) = ring_of({"overdrawn": 3})
    assert [Drr().allowance(entry, budget) for budget in (16, 8, 3, 0)] == [13, 5, 1, 0]
    ring = served(Drr(budget=8), [3, 1], 40)
    # allowed 8 - 1, 8 - 2, 8
    assert [grant.tokens for grant in ring.log if grant.request == "0"][1:4] == [
        9,
        6,
        9,
    ]


def test_drr_charges_nothing_for_rounds_that_nobody_waited_for():
    ring = Drr(budget=8).open(3)
    ring.place(Request("alone", (0,), 10**6), lambda request: False)
    for _ in range(500):
        ring.round("alone", 3, 0.01, over=False)
    ring.place(Request("new", (0,), 10**6), lambda request: False)
    ring.round("alone", 3, 0.01, over=False)
    assert ring.ring[-1].overdrawn <= 3


def test_vtc_takes_the_one_with_the_fewest_tokens():
    assert Vtc().pick(ring_of({"served": 30}, {"served": 12}, {"served": 20, "skips": 5})) == 1
    shares = [tokens(served(Vtc(budget=2), [1, 4, 2], 3000), name) for name in "012"]
    assert max(shares) - min(shares) <= 2 * 4 * 2


def test_vtc_a_newcomer_begins_at_the_lowest_counter_present():
    ring = served(Vtc(budget=2), [2, 2], 400)
    ring.place(Request("2", (0,), 10**6), lambda request: False)
    present = [entry.lift + entry.received for entry in (*ring.holding.values(), *ring.ring)]
    assert min(present) > 390
    assert ring.ring[-1].lift == min(present)


def test_srpt_takes_the_shortest_remaining():
    assert (
        Srpt().pick(ring_of({"max_new": 90}, {"max_new": 100, "served": 95}, {"max_new": 10})) == 1
    )
    ring = served(Srpt(budget=2), [1, 1, 1], 36, lengths=[20, 12, 4])
    assert [grant.request for grant in ring.log if grant.request != "0"] == ["2", "2", *["1"] * 6]


def test_srpt_counts_what_a_parked_request_emits_plainly():
    ring = served(Fifo(budget=2), [1, 1], 2)
    (parked,) = (entry for entry in ring.ring if entry.parked)
    before = parked.received
    ring.round(parked.request.id, 5, 0.01, over=False)
    assert parked.received == before + 5


@pytest.mark.parametrize("discipline", [Fifo, Strict, Drr, Vtc, Srpt, Rotate])
def test_a_skip_cap_bounds_every_discipline(discipline):
    """Endless short requests of the highest priority against one long of the lowest."""
    draw = random.Random(3)
    ring = discipline(budget=3, unit="rounds", skip_cap=2).open(3)
    ring.place(Request("long", (0,), 10**6, priority=0), lambda request: False)
    for n in range(600):
        if len(ring.ring) < 2:
            ring.place(Request(f"short {n}", (0,), 4, priority=9), lambda request: False)
        (holder,) = ring.holding
        over = holder != "long" and draw.random() < 0.2
        ring.round(holder, draw.randint(1, 4), 0.01, over=over)
        if over:
            ring.leave(holder)
        list(ring.promote(lambda request: False))
    gaps = [grant.waited for grant in ring.log if grant.request == "long" and grant.again]
    assert len(gaps) > 5
    assert max(gaps) <= (2 + 2 - 1) * 3
