"""Figures of grants, worked out by hand."""

from __future__ import annotations

import pytest

from mtp.grants import Everyone, Fifo
from mtp.grants.entry import Grant
from mtp.grants.stats import grant_stats, jain, request_grants, stats_of
from mtp.request import Finished
from tests.support.grant_loads import load

# a holds, b and c wait; a, b, c, a, b: grants of 3, 2, 2, 1 and 1 rounds on the clock 0..9
LOG = [
    Grant("a", 0, 3, 3, 6, 0, False),
    Grant("b", 3, 5, 2, 2, 2, False),
    Grant("c", 5, 7, 2, 8, 4, False),
    Grant("a", 7, 8, 1, 2, 4, True),
    Grant("b", 8, 9, 1, 1, 3, True),
]


def test_gaps_switches_and_peaks():
    figures = stats_of(LOG, ring_peak=3, live_peak=3)
    assert figures["max_gap_rounds"] == 4
    assert figures["p99_gap_rounds"] == pytest.approx(3.99)
    assert figures["switches"] == 4
    assert (figures["ring_peak"], figures["live_sessions_peak"]) == (3, 3)


def test_jain_is_over_what_each_got_while_it_was_present():
    """Present: a from 0 to 8, b from 1 to 9, c from 1 to 7."""
    figures = stats_of(LOG, ring_peak=0, live_peak=0)
    assert figures["jain_rounds"] == pytest.approx(jain([4 / 8, 3 / 8, 2 / 6]))
    assert figures["jain_tokens"] == pytest.approx(jain([8 / 8, 3 / 8, 8 / 6]))


@pytest.mark.parametrize(
    ("shares", "index"),
    [([1, 1, 1], 1.0), ([3, 0, 0], 1 / 3), ([2, 2, 0, 0], 0.5), ([], None), ([0, 0], None)],
)
def test_jain_is_1_for_equals_and_1_of_n_where_one_has_all(shares, index):
    assert jain(shares) == (pytest.approx(index) if index else None)


def test_a_regrant_to_the_same_request_is_no_switch():
    log = [Grant("a", 0, 2, 2, 2, 0, False), Grant("a", 2, 4, 2, 2, 0, True)]
    assert stats_of(log, ring_peak=1, live_peak=1)["switches"] == 0


def test_without_grants_there_is_no_figure():
    assert set(grant_stats(Everyone()).values()) == {None}
    assert grant_stats(Everyone()).keys() == stats_of(LOG, ring_peak=0, live_peak=0).keys()
    done = Finished("a", (1,), (2, 3, 4), "length", emitted_s=(1.0, 1.5, 3.0))
    assert request_grants(Everyone(), [done]) == {
        "a": {
            "grants": None,
            "rounds_per_grant": None,
            "longest_gap_rounds": None,
            "stall_s": 1.5,
            "plain_reason": None,
        }
    }


def test_of_a_run():
    engine = load(4, 4, 6, grants=Fifo(budget=2, backlog=1, share="tick"))
    engine.run()
    figures = grant_stats(engine.grants)
    assert figures == {
        "max_gap_rounds": 2,
        "p99_gap_rounds": 2.0,
        "jain_rounds": pytest.approx(jain([4 / 6, 4 / 7])),
        "jain_tokens": pytest.approx(jain([4 / 6, 4 / 7])),
        "switches": 3,
        "ring_peak": 2,
        "live_sessions_peak": 2,
    }
    of = request_grants(engine.grants, engine.finished)
    assert {
        name: (entry["grants"], entry["rounds_per_grant"], entry["longest_gap_rounds"])
        for name, entry in of.items()
    } == {
        "a": (2, 2.0, 2),
        "b": (2, 2.0, 2),
        "c": (None, None, None),
    }
    assert of["a"]["stall_s"] > of["c"]["stall_s"] > 0


def test_a_run_without_a_second_request_has_no_gap():
    engine = load(5)
    engine.run()
    figures = grant_stats(engine.grants)
    assert (figures["max_gap_rounds"], figures["switches"], figures["jain_rounds"]) == (
        None,
        0,
        1.0,
    )
