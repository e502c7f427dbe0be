"""Figures of a run: by hand on small records, and their invariants on records that the commit
rule could have made."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.metrics import acceptance_novel, new_grams, percentile, repetition, summarise
from mtp.records import Round
from mtp.request import Finished


def rounds_of(
    *windows: tuple[int, int, int], request: str = "a", finish: str | None = None
) -> list[Round]:
    """(drafted, accepted, committed) per window of one request; `finish` is that of the last."""
    last = len(windows) - 1
    return [
        Round(
            i,
            0,
            request,
            drafted + 1,
            drafted,
            accepted,
            committed,
            finish if i == last else None,
            float(i),
            i + 1.0,
        )
        for i, (drafted, accepted, committed) in enumerate(windows)
    ]


def finished(
    tokens: Any, *, id: str = "a", prompt: Any = (1,), emitted_s: Any = (), **more: Any
) -> Finished:
    return Finished(id, tuple(prompt), tuple(tokens), "length", emitted_s=tuple(emitted_s), **more)


def by_position(figures: dict[str, Any], name: str) -> list[Any]:
    return [entry[name] for entry in figures["acceptance_by_position"]]


# ---- known faults


def test_b02_rates_count_drafts_and_never_the_bonus():
    figures = summarise(
        rounds_of((3, 3, 4), (1, 0, 1), (0, 0, 1), (3, 1, 2)), [], decode_s=2.0, prefill_s=1.0
    )
    assert figures["acceptance_rate"] == pytest.approx(4 / 7)
    assert (figures["drafts_accepted"], figures["drafts_verified"]) == (4, 7)
    assert (
        figures["mean_acceptance_length"] == 2.0 == figures["tokens_committed"] / figures["windows"]
    )
    assert by_position(figures, "position") == [0, 1, 2]
    assert by_position(figures, "offered") == [3, 2, 2]
    assert by_position(figures, "accepted") == [2, 1, 1]
    assert by_position(figures, "cumulative") == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    assert by_position(figures, "conditional") == pytest.approx([2 / 3, 1 / 2, 1])


def test_b02_a_run_without_drafts_has_no_rate_and_mean_one():
    figures = summarise(rounds_of((0, 0, 1), (0, 0, 1)), [], decode_s=2.0, prefill_s=1.0)
    assert figures["acceptance_rate"] is None
    assert figures["mean_acceptance_length"] == 1.0
    assert figures["acceptance_by_position"] == []


def test_y04_clipped_and_cancelled_windows_do_not_distort():
    # three matched, the second token was the stop
    stopped = rounds_of((3, 1, 2), request="stopped", finish="stop")
    clipped = rounds_of((1, 1, 2), request="clipped", finish="length")  # room for two
    cancelled = rounds_of((3, 0, 0), request="cancelled", finish="cancelled")
    figures = summarise([*stopped, *clipped, *cancelled], [], decode_s=1.0, prefill_s=0.0)
    assert (figures["tokens_committed"], figures["rows_kept"], figures["drafts_accepted"]) == (
        4,
        4,
        2,
    )
    assert figures["mean_acceptance_length"] == 2.0
    assert (figures["drafts_verified"], figures["acceptance_rate"]) == (7, 2 / 4)
    # the cancelled window committed nothing: no verdict on its drafts
    assert by_position(figures, "offered") == [
        2,
        1,
        1,
    ]
    assert by_position(figures, "accepted") == [2, 0, 0]
    # the stop left two drafts unjudged
    assert by_position(figures, "conditional") == [
        1.0,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("rows", "drafted", "accepted", "committed"),
    [(4, 3, -1, 0), (4, 3, 3, 3), (2, 2, 0, 1), (2, 1, 2, 3), (1, 0, 0, -1)],
)
def test_y04_a_record_that_no_window_can_make_is_refused(rows, drafted, accepted, committed):
    with pytest.raises(ValueError, match=r"window 5, request a: .* expected drafted = rows - 1"):
        Round(5, 0, "a", rows, drafted, accepted, committed, None, 0.0, 1.0)


# ---- the figures one by one


def test_an_empty_run_has_no_rates():
    figures = summarise([], [], decode_s=0.0, prefill_s=0.0)
    rates = (
        "tokens_per_s",
        "end_to_end_tokens_per_s",
        "acceptance_rate",
        "mean_acceptance_length",
        "acceptance_novel",
        "repetition",
    )
    assert [figures[name] for name in rates] == [None] * 6
    assert figures["latency"] == {
        name: {"p50": None, "p99": None} for name in ("ttft_ms", "tpot_ms", "itl_ms")
    }
    assert (figures["windows"], figures["tokens_committed"], figures["requests"]) == (0, 0, [])


def test_the_prefills_token_is_in_the_end_to_end_rate_only():
    figures = summarise(
        rounds_of((3, 3, 4)),
        [finished(range(5))],
        decode_s=2.0,
        prefill_s=0.5,
        warmup_s=9.0,
        rows_padded=4,
    )
    assert (
        figures["tokens_committed"],
        figures["tokens_per_s"],
        figures["end_to_end_tokens_per_s"],
    ) == (4, 2.0, 2.0)
    assert (
        figures["decode_s"],
        figures["prefill_s"],
        figures["warmup_s"],
        figures["rows_padded"],
    ) == (2.0, 0.5, 9.0, 4)


def test_a_window_of_several_slots_is_one_window():
    records = [*rounds_of((3, 3, 4), (1, 1, 2)), *rounds_of((1, 0, 1), request="b")]
    figures = summarise(records, [], decode_s=1.0, prefill_s=0.0)
    assert (figures["windows"], figures["rows_verified"], figures["rows_kept"]) == (2, 8, 7)


def test_novel_acceptance_looks_at_the_token_that_the_first_draft_predicts():
    # text:    1 2 3 4 | 9 1 2 3 4 5    output 1 is the first a window commits
    # novel:             . . . . n y    the 4-gram (1 2 3 4) ends again at output 4
    request = finished([9, 1, 2, 3, 4, 5], prompt=[1, 2, 3, 4])
    assert new_grams(request.prompt + request.tokens, 4)[4:] == [
        True,
        True,
        True,
        True,
        False,
        True,
    ]
    missed, copied, last = (3, 2, 3), (1, 0, 1), (1, 0, 1)  # rounds that start at output 1, 4 and 5
    assert acceptance_novel(rounds_of(missed, copied, last), [request]) == 1 / 2
    assert acceptance_novel(rounds_of((0, 0, 1), (3, 1, 2), copied, last), [request]) == 1 / 2
    assert acceptance_novel(rounds_of((0, 0, 1), (0, 0, 1), (0, 0, 1), copied), [request]) is None
    assert (
        acceptance_novel(rounds_of((0, 0, 1), (0, 0, 1), (0, 0, 1), (1, 1, 2)), [request]) is None
    )


def test_novel_acceptance_leaves_out_a_first_draft_that_a_stop_left_unjudged():
    assert acceptance_novel(rounds_of((1, 0, 1), finish="stop"), [finished([5, 6])]) is None
    assert acceptance_novel(rounds_of((1, 0, 1), finish=None), [finished([5, 6])]) == 0.0
    # nothing was committed
    assert acceptance_novel(rounds_of((1, 0, 0), finish=None), [finished([5])]) is None


def test_novel_acceptance_keeps_requests_apart():
    both = [finished([5, 6, 7], id="a"), finished([5, 6, 7, 8], id="b")]
    records = [
        *rounds_of((1, 1, 2)),
        *rounds_of((1, 0, 1), (1, 1, 2), request="b"),
        *rounds_of((1, 1, 2), request="still running"),
    ]
    assert acceptance_novel(records, both) == 2 / 3


def test_repetition_is_the_share_after_the_first_repeated_16_gram():
    loop = list(range(16))
    assert repetition([finished(loop * 2)]) == 0.0  # it ends with the repeat
    assert repetition([finished(loop * 2 + [99, 98])]) == 2 / 34
    assert repetition([finished(loop * 3), finished(range(100, 116))]) == 16 / 64
    assert repetition([finished(range(200))]) == 0.0
    assert repetition([finished(loop, prompt=loop)]) == 0.0  # a copy of the prompt is not a loop
    assert repetition([finished([])]) is None


def test_latency_by_hand():
    steady = finished(range(5), id="a", emitted_s=[1.0, 1.5, 1.5, 2.0, 2.0], arrival_s=0.5)
    single = finished(range(1), id="b", emitted_s=[1.0], arrival_s=0.0)
    never = finished([], id="c")
    got = summarise([], [steady, single, never], decode_s=1.0, prefill_s=1.0)["latency"]
    assert got["ttft_ms"] == {"p50": 750.0, "p99": pytest.approx(995.0)}
    # one second for four tokens; one token has none
    assert got["tpot_ms"] == {
        "p50": 250.0,
        "p99": 250.0,
    }
    assert got["itl_ms"] == {"p50": 500.0, "p99": 500.0}  # two deliveries after the first


def test_requests_by_hand():
    requests = [
        finished(range(5), emitted_s=[1.0, 1.5, 1.5, 2.0, 2.0], arrival_s=0.5, priority=3),
        finished([], id="b", prompt=[1, 2]),
    ]
    first, second = summarise(
        rounds_of((1, 1, 2), (3, 1, 2)), requests, decode_s=1.0, prefill_s=1.0
    )["requests"]
    assert first == {
        "id": "a",
        "priority": 3,
        "prompt_tokens": 1,
        "tokens": 5,
        "finish": "length",
        "ttft_s": 0.5,
        "tokens_per_s": 4.0,
        "mean_acceptance_length": 2.0,
    }
    assert (
        second["prompt_tokens"],
        second["ttft_s"],
        second["tokens_per_s"],
        second["mean_acceptance_length"],
    ) == (2, None, None, None)


@pytest.mark.parametrize(("p", "value"), [(0, 1.0), (50, 2.5), (99, 3.97), (100, 4.0)])
def test_percentiles_are_linear(p, value):
    assert percentile([3.0, 1.0, 4.0, 2.0], p) == pytest.approx(value)
    assert percentile([7.0], p) == 7.0


# ---- invariants


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Round], list[Finished]]:
    records: list[Round] = []
    requests = []
    for slot in range(draw(st.integers(0, 4))):
        total = 1
        for window in range(draw(st.integers(0, 6))):
            rows = draw(st.sampled_from([1, 2, 4]))
            committed = draw(st.integers(0 if window == 5 else 1, rows))
            finish = "error" if committed == 0 else None
            records.append(
                Round(
                    window,
                    slot,
                    str(slot),
                    rows,
                    rows - 1,
                    max(0, committed - 1),
                    committed,
                    finish,
                    window,
                    window + 1,
                )
            )
            total += committed
        requests.append(
            finished(
                [draw(st.integers(0, 2)) for _ in range(total)],
                id=str(slot),
                emitted_s=[float(i) for i in range(total)],
            )
        )
    return draw(st.permutations(records)), requests


@settings(max_examples=200, deadline=None)
@given(run=runs())
def test_figures_keep_their_bounds_and_add_up(run):
    records, requests = run
    figures = summarise(records, requests, decode_s=2.0, prefill_s=1.0)
    assert figures == summarise(
        sorted(records, key=lambda entry: (entry.slot, entry.window)),
        requests,
        decode_s=2.0,
        prefill_s=1.0,
    )
    assert (
        figures["tokens_committed"]
        == figures["rows_kept"]
        == sum(len(request.tokens) - 1 for request in requests)
    )
    assert figures["rows_kept"] <= figures["rows_verified"]
    assert 0 <= figures["drafts_accepted"] <= figures["drafts_verified"] <= figures["rows_verified"]
    assert sum(by_position(figures, "accepted")) == figures["drafts_accepted"]
    shares = [figures["acceptance_rate"], figures["acceptance_novel"], figures["repetition"]]
    shares += by_position(figures, "conditional") + by_position(figures, "cumulative")
    assert all(share is None or 0 <= share <= 1 for share in shares)
    committing = [entry for entry in records if entry.committed]
    mean = figures["mean_acceptance_length"]
    assert (
        mean is None
        if not committing
        else mean == pytest.approx(figures["tokens_committed"] / len(committing))
    )
