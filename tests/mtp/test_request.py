"""Requests: what is refused at the door, and the mirror of one in its slot."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from mtp.request import Request, Stream


def test_a_request_takes_any_collection_and_freezes_it():
    request = Request("a", [1, 2, 3], 5, stop_ids=[7, 7, 9])
    assert (request.prompt, request.stop_ids) == ((1, 2, 3), frozenset({7, 9}))
    assert hash(request) == hash(Request("a", (1, 2, 3), 5, stop_ids={9, 7}))
    with pytest.raises(FrozenInstanceError):
        request.seed = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": ()}, "request a: the prompt is empty, expected at least one token"),
        ({"max_new_tokens": 0}, "request a: max_new_tokens is 0, expected at least 1"),
        ({"max_new_tokens": -3}, "request a: max_new_tokens is -3, expected at least 1"),
        (
            {"min_new_tokens": -1},
            r"request a: min_new_tokens is -1, expected 0 to max_new_tokens \(5\)",
        ),
        (
            {"min_new_tokens": 6},
            r"request a: min_new_tokens is 6, expected 0 to max_new_tokens \(5\)",
        ),
        ({"arrival_s": -0.5}, "request a: arrival_s is -0.5, expected 0 or more seconds"),
        ({"arrival_s": float("nan")}, "request a: arrival_s is nan, expected 0 or more seconds"),
        ({"arrival_s": float("inf")}, "request a: arrival_s is inf, expected 0 or more seconds"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_bad_request_is_refused_in_one_line(change, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Request(**{"id": "a", "prompt": (1,), "max_new_tokens": 5} | change)


def test_the_smallest_and_the_largest_minimum_are_fine():
    assert Request("a", (1,), 1).min_new_tokens == 0
    assert Request("a", (1,), 5, min_new_tokens=5).min_new_tokens == 5


def test_a_stream_runs_from_prefill_to_full():
    stream = Stream(Request("a", (1, 2, 3), 2), slot=4, context=9)
    assert (stream.prefilling, stream.room, stream.stamp) == (True, 2, (0, -1, 0))
    stream.prefilled, stream.position = 3, 3
    stream.tokens.append(8)
    assert (stream.prefilling, stream.room, stream.stamp) == (False, 1, (3, 8, 0))
    assert stream.position == len(stream.request.prompt) + len(stream.tokens) - 1


def test_held_drafts_are_stamped_with_position_anchor_and_round():
    stream = Stream(Request("a", (1,), 9), slot=0, context=9, tokens=[5], position=1)
    stamp = stream.stamp
    for change in ({"position": 2}, {"tokens": [6]}, {"rounds": 1}):
        other = Stream(
            **{"request": stream.request, "slot": 0, "context": 9, "tokens": [5], "position": 1}
            | change
        )
        assert other.stamp != stamp


def test_streams_share_nothing():
    first, second = (Stream(Request("a", (1,), 9), slot=0, context=9) for _ in range(2))
    first.tokens.append(1)
    first.emitted_s.append(0.5)
    assert (second.tokens, second.emitted_s) == ([], [])
