"""Reports that once said more, or less, than their runs do (N and F cases)."""

from __future__ import annotations

import json
import shutil

import polars as pl
import pytest

from experiments import load
from experiments.report import page
from experiments.report.build import build, results_table
from experiments.report.panel import Points, View, most
from experiments.report.plots import pareto, positions, speed, timeline
from tests.support.run_folders import write_run

WINDOWS = [[("a", 4, 4), ("b", 2, 2)]] * 8  # a: 33 tokens, b: 17


def rows_of(folder):
    return {row.arm.label: row for row in build(folder).rows}


def notes_of(folder, words):
    return [note for note in build(folder).notes if words in note]


def rewrite_tokens(run, change):
    file = run / "tokens.jsonl"
    lines = [json.loads(line) | change for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def loop(run):
    """The text of a loops from its 17th token on, in the middle of the run."""
    file = run / "tokens.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line["request"] == "a":
            line["tokens"] = [n % 16 for n in range(len(line["tokens"]))]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_N03_arms_without_pairs_do_not_rank_and_the_page_says_why(tmp_path):
    write_run(tmp_path / "plain", policy="static_k", k=0, window_s=0.1)
    write_run(tmp_path / "paired", policy="static_k", k=1)
    write_run(tmp_path / "seed", config={"seed": 7}, window_s=0.001)
    rewrite_tokens(write_run(tmp_path / "prompts", policy="hindsight"), {"prompt_hash": "other"})
    (write_run(tmp_path / "lost", policy="static_k", k=3) / "rounds.parquet").unlink()
    rows = rows_of(tmp_path)
    assert {label: row.rank for label, row in rows.items()} == {
        "static_k k=1": 1,
        "static_k k=0": 2,
        "static_k k=3": None,
        "rotate_grow": None,
        "hindsight": None,
    }
    made = build(tmp_path)
    shown = page.html(made, made.draw())
    for label, words in (
        ("rotate_grow", "no run of their baseline has their seed"),
        ("hindsight", "their baseline decoded none of their prompts"),
        ("static_k k=3", "is missing or has no rounds"),
    ):
        (note,) = notes_of(tmp_path, words)
        assert f"1 of 5 arms ({label}): no ratio and no rank" in note
        assert words in shown
    (front,) = pareto.draw(View(made.rows))
    assert {mark.name for mark in front.marks} == {"static_k k=0", "static_k k=1", "Pareto front"}


def test_N03_an_arm_whose_baseline_has_wrong_tokens_says_so(tmp_path):
    wrong = {"checked": 2, "exact": False}
    write_run(tmp_path / "plain", policy="static_k", k=0, parity=wrong)
    write_run(tmp_path / "arm")
    assert rows_of(tmp_path)["rotate_grow"].rank is None
    assert notes_of(tmp_path, "no arm with the right tokens can be their baseline")


def test_N03_ranks_are_of_what_both_have(tmp_path):
    """More tokens per second on prompts that the baseline never saw give no place."""
    write_run(tmp_path / "plain", policy="static_k", k=0, windows=WINDOWS)
    write_run(tmp_path / "fair", policy="static_k", k=1, windows=WINDOWS, window_s=0.045)
    easy = [[("c", 4, 4), ("d", 4, 4)]] * 40
    write_run(tmp_path / "more", windows=[*WINDOWS, *easy])
    rows = rows_of(tmp_path)
    assert rows["rotate_grow"].tokens_per_s > rows["static_k k=1"].tokens_per_s
    assert (rows["static_k k=1"].rank, rows["static_k k=1"].partial) == (1, False)
    assert rows["rotate_grow"].partial
    assert "1 of 3 arms (rotate_grow)" in notes_of(tmp_path, "what both have")[0]


def test_N23_a_run_whose_folder_was_copied_counts_once(tmp_path):
    run = write_run(tmp_path / "a")
    for name in ("b", "c"):
        shutil.copytree(run, tmp_path / name)
    write_run(tmp_path / "d", config={"seed": 1})
    made = build(tmp_path)
    (row,) = made.rows
    assert (len(row.arm.runs), row.ratio.pairs) == (2, 2)
    assert notes_of(tmp_path, "1 of 1 arms have fewer than 3 runs")
    (note,) = notes_of(tmp_path, "copies")
    assert "2 folders are copies: 1 runs lie there more than once and count once" in note
    assert all(str(tmp_path / name) in note for name in "abc")
    assert f"the same run: {tmp_path / 'b'}" in page.html(made, made.draw())
    assert load(tmp_path).height == results_table(made).height == 2


def test_N22_speed_is_shown_without_the_rounds_of_looping_text(tmp_path):
    """After the loop begins, a's groups pay off twice as much as before."""
    before = [[("a", 4, 2), ("b", 4, 2)]] * 8  # a begins its rounds at 1, 3, .., 15: none loops
    after = [[("a", 4, 4), ("b", 4, 4)]] * 8
    plain = [[("a", 1, 1), ("b", 1, 1)]] * 48
    loop(write_run(tmp_path / "plain", policy="static_k", k=0, windows=plain))
    loop(write_run(tmp_path / "arm", windows=[*before, *after]))
    row = rows_of(tmp_path)["rotate_grow"]
    assert row.ratio.value == pytest.approx(3.0)
    # a: 16 tokens of 8 windows; b, which never loops: 48 of 16; each half of a window
    assert row.speed_before_loops == pytest.approx((16 + 48) / (0.05 * (8 + 16) / 2))
    assert row.ratio_before_loops.value == pytest.approx((64 / 12) / (63 / 31.5))
    assert row.looped == pytest.approx(1 / 3)
    (note,) = notes_of(tmp_path, "Text loops in 2 of 2 arms")
    assert "rotate_grow (33%)" in note
    table = results_table(build(tmp_path)).filter(pl.col("arm") == "rotate_grow")
    assert table["arm_ratio_before_loops"].item() == row.ratio_before_loops.value
    made = build(tmp_path)
    assert "<th" in (html := page.html(made, made.draw()))
    assert ">ratio before loops</th>" in html


def test_N22_text_that_never_loops_has_one_speed(tmp_path):
    write_run(tmp_path / "plain", policy="static_k", k=0)
    write_run(tmp_path / "arm", window_s=0.02)
    row = rows_of(tmp_path)["rotate_grow"]
    assert row.ratio == row.ratio_before_loops
    assert row.speed_before_loops == pytest.approx(row.tokens_per_s)
    assert not notes_of(tmp_path, "loops")


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """13 baselines with two arms each: a picture of 24 places cannot hold all."""
    folder = tmp_path_factory.mktemp("many")
    for slots in range(13):
        for k, window_s in ((0, 0.1), (1, 0.02), (3, 0.2)):
            write_run(
                folder / f"{slots}-{k}",
                policy="static_k",
                k=k,
                window_s=window_s,
                config={"slots": slots},
            )
    return build(folder)


def test_F15_pictures_with_more_baselines_than_places_show_arms(many):
    for count in (4, 8, 24):
        kept = most(many.rows, count)
        assert len(kept) == count
        assert sum(row.is_baseline for row in kept) == count // 2
        assert {row.against for row in kept if not row.is_baseline} == {
            row.arm.label for row in kept if row.is_baseline
        }
    (panel,) = speed.draw(View(many.rows))
    assert "24 of 39 arms" in panel.title
    names = {mark.name: len(mark.x) for mark in panel.marks if isinstance(mark, Points)}
    assert names == {"baseline": 12, "arm": 12}


def test_F15_the_forest_plot_keeps_the_slowest_arms(tmp_path):
    for k in range(30):
        write_run(tmp_path / str(k), policy="static_k", k=k, window_s=0.05 + 0.001 * k)
    write_run(tmp_path / "wrong", parity={"checked": 2, "exact": False})
    rows = build(tmp_path).rows
    kept = [row.arm.values["policy.k"] for row in most(rows, 6)]
    assert kept == ["0", "1", "2", "3", "28", "29"]
    assert "fastest and the slowest" in speed.PLOT.says


def test_F16_what_is_said_to_be_in_a_file_is_there(many):
    table = results_table(many)
    assert table.height == len(many.runs)
    view = View(many.rows)
    (panel,) = speed.draw(view)
    assert "all are in results.parquet" in panel.title
    assert table["arm_ratio"].null_count() == 0
    panels = positions.draw(view)
    assert "all are in results.parquet" in panels[0].title
    (row,) = table.filter(pl.col("arm") == "static_k k=3 slots=7").to_dicts()
    (drawn,) = [one for one in many.rows if one.arm.label == "static_k k=3 slots=7"]
    found = json.loads(row["arm_acceptance_by_position_before_loops"])
    assert [place["conditional"] for place in found] == [
        place.conditional for place in drawn.acceptance.positions
    ]
    windows = timeline.draw(view)
    assert "all are in each run's rounds.parquet" in windows[0].title
    assert "results.parquet" not in windows[0].title


def test_F16_two_acceptance_lengths_have_two_names(tmp_path):
    loop(write_run(tmp_path / "a", windows=[*[[("a", 4, 2)]] * 8, *[[("a", 4, 4)]] * 8]))
    made = build(tmp_path)
    (row,) = results_table(made).to_dicts()
    assert row["arm_acceptance_length_before_loops"] == 2.0
    assert row["mean_acceptance_length"] == 3.0
    text = page.text(made, made.draw())
    assert "| accept. length before loops |" in text
    assert "| accept. length |" not in text


def test_F16_a_timeline_that_is_cut_says_so(tmp_path):
    write_run(tmp_path / "a", windows=[[("a", 1, 1)]] * 300)
    (panel,) = timeline.draw(View(build(tmp_path).rows))
    assert "240 of 300 windows; all are in each run's rounds.parquet" in panel.title


def test_F03_an_arm_that_never_verified_a_draft_is_named(tmp_path):
    plain = [[("a", 1, 1), ("b", 1, 1)]] * 3
    for name, policy, k, drafts in (
        ("plain", "static_k", 0, 0),
        ("silent", "rotate_grow", None, 0),
        ("other", "static_k", 1, 9),
    ):
        metrics = {"drafts_verified": drafts}
        write_run(tmp_path / name, policy=policy, k=k, windows=plain, metrics=metrics)
    (note,) = notes_of(tmp_path, "no draft was ever verified")
    assert "1 of 3 arms (rotate_grow)" in note
