"""The ring by itself."""

from __future__ import annotations

from mtp.grants import Rotate
from mtp.request import Request


def never(request):
    return False


def ring_of(*priorities, **options):
    ring = Rotate(**({"budget": 1} | options)).open(8)
    for n, priority in enumerate(priorities):
        ring.place(Request(f"{n}", (0,), 99, priority=priority), never)
    return ring


def picks(ring, count):
    names = []
    for _ in range(count):
        (holder,) = ring.holding
        ring.round(holder, 1, 0.0, over=False)
        names += [request.id for request, _ in ring.promote(never)]
    return names


def skips(ring):
    return {entry.request.id: entry.skips for entry in ring.ring}


def test_a_reparked_entry_starts_at_0():
    ring = ring_of(0, 2, 2)
    assert picks(ring, 3) == ["1", "2", "0"]  # 0 was passed over twice: now it is the most-skipped
    assert skips(ring) == {"1": 2, "2": 1}
    ring.round("0", 1, 0.0, over=False)
    assert skips(ring)["0"] == 0


def test_each_pick_adds_one_skip_to_every_other_entry_also_when_it_ends_in_a_cancel_or_a_decline():
    ring = ring_of(1, 3, 3, 1, backlog=3)
    ring.cancel("1")
    ring.round("0", 1, 0.0, over=False)
    picked = list(ring.promote(lambda request: request.id == "2"))
    assert [(request.id, what) for request, what in picked] == [
        ("1", "cancelled"),
        ("2", "plain"),
        ("3", "holding"),
    ]
    assert skips(ring) == {"0": 3}


def test_a_free_grant_is_the_rings_before_a_newcomers():
    ring = ring_of(1, 1)
    ring.leave("0")
    assert ring.place(Request("new", (0,), 9), never) == "waiting"
    assert [request.id for request, _ in ring.promote(never)] == ["1"]


def test_cancel_knows_only_the_ring():
    ring = ring_of(1, 1)
    assert not ring.cancel("0")
    assert not ring.cancel("nobody")
    assert ring.cancel("1")
    assert ring.cancel("1")
    assert [entry.cancelled for entry in ring.ring] == [True]


def test_several_holders_are_promoted_in_one_step():
    ring = ring_of(1, 1, 1, 1, holders=2)
    assert [*ring.holding] == ["0", "1"]
    for name in "01":
        ring.round(name, 1, 0.0, over=False)
    assert [request.id for request, _ in ring.promote(never)] == ["2", "3"]
    assert (ring.ring_peak, ring.live_peak) == (4, 4)
