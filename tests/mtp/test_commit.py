"""The commit rule: the published checks, and the rule against a walk of the candidate output in
token order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.commit import Committed, commit_group

FED = (10, 20, 30, 40)
PLENTY = {"stop_ids": {7}, "max_new": 100, "context": 1000, "position": 0}


# ---- the checks of the specification


def test_full_match_keeps_every_row():
    assert commit_group(FED, [20, 30, 40, 50], **PLENTY) == Committed((20, 30, 40, 50), 4, 3, None)


def test_a_mismatch_ends_the_prefix_with_the_targets_own_pick():
    assert commit_group(FED, [20, 30, 99, 50], **PLENTY) == Committed((20, 30, 99), 3, 2, None)


def test_a_stop_id_is_emitted_last_and_its_row_is_not_kept():
    assert commit_group([10, 20, 7, 40], [20, 7, 40, 50], **PLENTY) == Committed(
        (20, 7), 2, 1, "stop"
    )


def test_max_new_clips_a_full_match():
    assert commit_group(FED, [20, 30, 40, 50], produced=98, **PLENTY) == Committed(
        (20, 30), 2, 1, "length"
    )


def test_the_context_clips_a_full_match():
    assert commit_group(FED, [20, 30, 40, 50], **{**PLENTY, "position": 996}) == Committed(
        (20, 30, 40), 3, 2, "length"
    )


# ---- single rules


def test_prefill_is_a_commit_of_one_row():
    prefill = {"produced": 0, "position": 4, "stop_ids": {7}}
    assert commit_group([3], [5], max_new=9, context=99, **prefill) == Committed((5,), 1, 0, None)
    assert commit_group([3], [7], max_new=9, context=99, **prefill) == Committed((7,), 1, 0, "stop")
    assert commit_group([3], [5], max_new=1, context=99, **prefill).finish == "length"
    assert commit_group([3], [5], max_new=9, context=6, **prefill).finish == "length"
    assert commit_group([3], [5], max_new=9, context=99, faults=[True], **prefill) == Committed(
        (), 0, 0, "error"
    )


def test_a_stop_id_as_the_last_token_with_room_is_a_stop():
    assert commit_group([10, 20], [20, 7], produced=98, **PLENTY).finish == "stop"


def test_a_stop_id_of_the_bonus_ends_with_every_row_kept():
    assert commit_group(FED, [20, 30, 40, 7], **PLENTY) == Committed((20, 30, 40, 7), 4, 3, "stop")


def test_ignored_stop_ids_are_ordinary_tokens():
    assert commit_group([10, 7, 30], [7, 30, 7], ignore_stop=True, **PLENTY) == Committed(
        (7, 30, 7), 3, 2, None
    )


@pytest.mark.parametrize(("produced", "kept"), [(0, 4), (1, 3), (2, 2), (3, 1), (4, 1)])
def test_min_new_counts_output_tokens(produced, kept):
    outcome = commit_group([10, 7, 7, 7], [7, 7, 7, 7], min_new=3, produced=produced, **PLENTY)
    assert (outcome.kept, outcome.finish) == (kept, "stop")


def test_a_faulty_row_that_is_reached_ends_after_the_rows_before_it():
    assert commit_group(
        FED, [20, 30, 0, 50], faults=[False, False, True, False], **PLENTY
    ) == Committed((20, 30), 2, 1, "error")


def test_a_faulty_row_that_is_not_reached_does_not_matter():
    for picks, fed in (([20, 99, 0, 0], FED), ([20, 7, 0, 0], (10, 20, 7, 40))):
        assert (
            commit_group(fed, picks, faults=[False, False, True, True], **PLENTY).finish != "error"
        )


def test_a_slot_that_may_not_run_is_refused():
    for change in ({"produced": 100}, {"position": 999}, {"position": 1000}):
        with pytest.raises(ValueError, match="no room: produced"):
            commit_group([1], [2], **{**PLENTY, **change})


@pytest.mark.parametrize(
    ("fed", "picks", "faults"),
    [((), (), None), ((1,), (), None), ((1,), (2, 3), None), ((1,), (2,), (True, False))],
)
def test_lengths_that_do_not_match_are_refused(fed, picks, faults):
    with pytest.raises(ValueError, match="as many picks and faults as rows"):
        commit_group(fed, picks, faults=faults, **PLENTY)


# ---- against a walk of the candidate in token order


def walk(
    fed, picks, *, stop_ids, produced, max_new, position, context, min_new, ignore_stop, faults
) -> Committed:
    matched = 0
    while matched + 1 < len(fed) and fed[matched + 1] == picks[matched]:
        matched += 1
    emitted: list[int] = []
    for row, token in enumerate(picks[: matched + 1]):  # the accepted drafts, then one bonus
        if faults[row]:
            return Committed(tuple(emitted), len(emitted), max(0, len(emitted) - 1), "error")
        emitted.append(token)
        output = produced + len(emitted)
        finish = None
        if token in stop_ids and not ignore_stop and output > min_new:
            finish = "stop"
        # the anchor is text number position + 1
        elif output == max_new or position + 1 + len(emitted) == context:
            finish = "length"
        if finish:
            break
    return Committed(tuple(emitted), len(emitted), len(emitted) - 1, finish)


@st.composite
def groups(draw: st.DrawFn) -> dict:
    rows = draw(st.integers(1, 5))
    token = st.integers(0, 3)
    picks = draw(st.lists(token, min_size=rows, max_size=rows))
    # mostly what the target picks
    drafts = [pick if draw(st.integers(0, 4)) else draw(token) for pick in picks[:-1]]
    produced, position = draw(st.integers(0, 5)), draw(st.integers(0, 20))
    return {
        "fed": [draw(token), *drafts],
        "picks": picks,
        "stop_ids": draw(st.sets(token, max_size=2)),
        "produced": produced,
        "max_new": produced + draw(st.integers(1, 6)),
        "position": position,
        "context": position + 1 + draw(st.integers(1, 6)),
        "min_new": draw(st.integers(0, 7)),
        "ignore_stop": draw(st.booleans()),
        "faults": [draw(st.integers(0, 7)) == 0 for _ in range(rows)],
    }


@settings(max_examples=800, deadline=None)
@given(group=groups())
def test_commit_equals_the_walk_in_token_order(group):
    assert commit_group(**group) == walk(**group)


@settings(max_examples=400, deadline=None)
@given(group=groups())
def test_every_commit_keeps_the_invariants(group):
    outcome = commit_group(**group)
    rows, kept = len(group["fed"]), outcome.kept
    assert len(outcome.tokens) == kept <= rows
    assert outcome.accepted == max(0, kept - 1)
    assert kept >= 1 or outcome.finish == "error"
    assert group["produced"] + kept <= group["max_new"]
    assert group["position"] + 1 + kept <= group["context"]
    # kept drafts are what was emitted before the last
    assert list(outcome.tokens[:-1]) == list(group["fed"][1:kept])
    if outcome.finish is None:  # the next window may run
        assert group["produced"] + kept < group["max_new"]
        assert group["position"] + kept + 2 <= group["context"]
