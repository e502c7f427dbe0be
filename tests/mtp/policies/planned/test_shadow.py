"""Shadow scoring: what is learnt of a draft, and what is not."""

from __future__ import annotations

from mtp.policies.planned.shadow import Shadow
from tests.support.policy_results import slot_result, window_result


def verdicts(shadow: Shadow, *args, **kwargs) -> list[tuple[int, bool, bool]]:
    return [
        (verdict.place, verdict.hit, verdict.verified)
        for verdict in shadow.observe(window_result(slot_result("a", *args, **kwargs)))
    ]


def held(drafts: tuple[int, ...]) -> Shadow:
    shadow = Shadow()
    shadow.hold("a", drafts, (0.9,) * len(drafts), (0.7,) * len(drafts))
    return shadow


def test_a_draft_without_a_row_is_judged_by_the_tokens_that_come():
    shadow = held((5, 6, 7))
    assert verdicts(shadow, [5], rows=1) == [(0, True, False)]
    assert verdicts(shadow, [6], rows=1) == [(1, True, False)]
    assert verdicts(shadow, [9], rows=1) == [(2, False, False)]
    assert verdicts(shadow, [1], rows=1) == []


def test_verified_drafts_say_so():
    assert verdicts(held((5, 6, 7)), [5, 6], rows=2) == [(0, True, True), (1, True, False)]


def test_nothing_is_said_behind_the_first_wrong_draft():
    assert verdicts(held((5, 6, 7)), [4], rows=4) == [(0, False, True)]


def test_several_open_chains():
    shadow = held((5, 6, 7))
    assert verdicts(shadow, [5], rows=1, drafts=(6, 8)) == [(0, True, False)]
    shadow.hold("a", (6, 8), (), (0.7, 0.7))
    assert sorted(verdicts(shadow, [6, 7], rows=2)) == [
        (0, True, True),
        (1, False, False),
        (1, True, False),
        (2, True, False),
    ]


def test_a_last_window_teaches_nothing():
    """Y04: (drafted 3, matched 3, stop at token 2), (drafted 1, room 2), (drafted 3, cancelled,
    nothing committed)."""
    assert verdicts(held((5, 6, 7)), [5, 6], rows=4, finish="stop") == []
    assert verdicts(held((5,)), [5, 6], rows=2, finish="length") == []
    shadow = held((5, 6, 7))
    assert verdicts(shadow, [], rows=4) == []
    assert len(shadow) == 0


def test_a_park_changes_nothing():
    shadow = held((5, 6, 7))
    for _ in range(100):
        assert shadow.observe(window_result(slot_result("b", [1]))) == []
    assert verdicts(shadow, [5, 6, 7, 8], rows=4) == [
        (0, True, True),
        (1, True, True),
        (2, True, True),
    ]
