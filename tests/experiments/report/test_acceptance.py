"""Acceptance as a report shows it: the rules of mtp.metrics, on text before it loops."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.report.acceptance import acceptance_of, loop_start
from experiments.report.runs import Run
from experiments.runs.results import write_rounds
from mtp.metrics import acceptance_by_position, mean_acceptance_length
from mtp.metrics import rate as rate_of
from mtp.records import Round


def run_of(folder, rounds, texts=()):
    write_rounds(folder / "rounds.parquet", rounds)
    lines = [
        {"request": name, "prompt_hash": name, "tokens": list(tokens)} for name, tokens in texts
    ]
    (folder / "tokens.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder, "ok", None, {}, {"evidence": "cpu"})


def rounds_of(*records, request="a", finish=None):
    """records: (drafted, accepted, committed); finish: of the last."""
    ends = [None] * (len(records) - 1) + [finish]
    return [
        Round(w, 0, request, drafted + 1, drafted, accepted, committed, end, w, w + 1)
        for w, ((drafted, accepted, committed), end) in enumerate(zip(records, ends, strict=True))
    ]


def test_B02_the_bonus_is_no_draft_and_the_denominator_is_what_was_drafted(tmp_path):
    found = acceptance_of([run_of(tmp_path, rounds_of((3, 3, 4), (1, 0, 1), (0, 0, 1), (3, 1, 2)))])
    assert (found.rate, found.length) == (4 / 7, 2.0)
    assert [place.cumulative for place in found.positions] == [2 / 3, 1 / 2, 1 / 2]
    assert [place.offered for place in found.positions] == [3, 2, 2]


def test_B02_without_drafts_there_is_no_rate(tmp_path):
    found = acceptance_of([run_of(tmp_path, rounds_of((0, 0, 1), (0, 0, 1)))])
    assert (found.rate, found.length, found.positions) == (None, 1.0, ())


def test_Y04_clipped_and_cancelled_windows(tmp_path):
    stopped = rounds_of((3, 1, 2), request="stopped", finish="stop")
    clipped = rounds_of((1, 1, 2), request="clipped", finish="length")
    cancelled = rounds_of((3, 0, 0), request="cancelled", finish="cancelled")
    found = acceptance_of([run_of(tmp_path, [*stopped, *clipped, *cancelled])])
    assert (found.length, found.rate, found.rounds) == (2.0, 2 / 4, 2)
    assert [(place.offered, place.accepted, place.conditional) for place in found.positions] == [
        (2, 2, 1.0),
        (1, 0, None),
        (1, 0, None),
    ]


def test_text_is_cut_before_its_first_repeated_16_gram():
    loop = list(range(16))
    assert loop_start(loop) == 16
    assert loop_start([*loop, *loop]) == 16
    assert loop_start([99, *loop, 98, *loop, 5]) == 18
    assert loop_start([7] * 40) == 1  # the first gram of sevens ends at 15, its repeat begins at 1
    assert loop_start([]) == 0


def test_rounds_that_begin_in_a_loop_do_not_count(tmp_path):
    loop = list(range(16))
    text = [99, *loop, 98, *loop, 5]  # cut: 18 tokens
    # begin at 1, 5, 9, 13, 14, 18, ..
    rounds = rounds_of((3, 3, 4), (3, 3, 4), (3, 3, 4), (3, 0, 1), (3, 3, 4), *[(3, 3, 4)] * 4)
    found = acceptance_of([run_of(tmp_path, rounds, [("a", text)])])
    assert (found.rounds, found.rate) == (5, 12 / 15)
    assert acceptance_of([run_of(tmp_path, rounds, [("a", range(40))])]).rounds == 9


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("rounds")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_figures_are_those_of_the_metrics(data, scratch):
    rounds = []
    for request in "abc"[: data.draw(st.integers(1, 3))]:
        count = data.draw(st.integers(1, 5))
        for window in range(count):
            rows = data.draw(st.sampled_from([1, 2, 4]))
            last = window == count - 1
            committed = data.draw(st.integers(0 if last else 1, rows))
            finish = data.draw(st.sampled_from(["stop", "length"])) if last and committed else None
            accepted = max(0, committed - 1)
            rounds.append(
                Round(
                    window,
                    ord(request),
                    request,
                    rows,
                    rows - 1,
                    accepted,
                    committed,
                    finish,
                    window,
                    window + 1,
                )
            )
    found = acceptance_of([run_of(scratch, rounds)])
    assert found.length == mean_acceptance_length(rounds)
    assert found.rate == rate_of(
        sum(r.accepted for r in rounds), sum(r.drafted for r in rounds if r.committed)
    )
    places = [
        (p.position, p.offered, p.accepted, p.conditional, p.cumulative) for p in found.positions
    ]
    assert places == [tuple(figure.values()) for figure in acceptance_by_position(rounds)]
