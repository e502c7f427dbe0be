"""Paired ratios and their intervals, against the plainest code that could say the same."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from experiments.bootstrap import ratio_draws
from experiments.report.acceptance import acceptance_of
from experiments.report.runs import find_runs, read_run
from experiments.report.statistics import paired, ratio_of, ratio_of_work, work_of
from tests.support.run_folders import write_run


def test_work_of_all_prompts_is_the_runs_own_speed(tmp_path):
    run = read_run(write_run(tmp_path / "a"))
    work = work_of(run)
    assert set(work) == {"a hash of a", "b hash of b"}
    assert sum(seconds for _, seconds in work.values()) == pytest.approx(run.metrics["decode_s"])
    assert sum(tokens for tokens, _ in work.values()) / run.metrics["decode_s"] == pytest.approx(
        run.metrics["tokens_per_s"]
    )
    # rows of a in three windows: 4 of 6, 2 of 6, 4 of 5
    assert work["a hash of a"] == (8, pytest.approx(0.05 * (4 / 6 + 2 / 6 + 4 / 5)))


def test_the_ratio_is_of_prompts_and_seeds_that_both_have(tmp_path):
    slow = [
        write_run(tmp_path / f"slow{seed}", window_s=0.1, config={"seed": seed}) for seed in (0, 1)
    ]
    fast = [
        write_run(tmp_path / f"fast{seed}", window_s=0.05, config={"seed": seed}) for seed in (1, 2)
    ]
    base, arm = [read_run(folder) for folder in slow], [read_run(folder) for folder in fast]
    assert [(one.seed, other.seed) for one, other in paired(arm, base)] == [(1, 1)]
    ratio = ratio_of(arm, base)
    assert ratio is not None
    assert (ratio.value, ratio.prompts, ratio.pairs) == (pytest.approx(2.0), 2, 1)
    # every prompt is twice as fast
    assert (ratio.low, ratio.high) == (
        pytest.approx(2.0),
        pytest.approx(2.0),
    )


def test_only_prompts_that_both_decoded_count():
    arm, base = {"a": (10.0, 1.0), "b": (50.0, 1.0)}, {"a": (5.0, 1.0), "c": (1.0, 9.0)}
    ratio = ratio_of_work([(arm, base)])
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high, ratio.prompts) == (2.0, None, None, 1)
    assert ratio_of_work([({"a": (1.0, 1.0)}, {"b": (1.0, 1.0)})]) is None
    assert ratio_of_work([]) is None


def brute_force(cells: np.ndarray) -> list[float]:
    """Every draw of prompts with every draw of pairs: the cells of both added up, and divided."""
    _, prompts, pairs = cells.shape
    found = []
    for drawn in product(range(prompts), repeat=prompts):
        for runs in product(range(pairs), repeat=pairs):
            tokens, seconds, base_tokens, base_seconds = (
                sum(cells[part, p, r] for p in drawn for r in runs) for part in range(4)
            )
            found.append((tokens / seconds) / (base_tokens / base_seconds))
    return found


@pytest.mark.parametrize(("prompts", "pairs"), [(4, 1), (3, 3), (2, 4), (5, 1)])
def test_resamples_are_drawn_from_all_there_are(prompts, pairs):
    cells = np.random.default_rng(prompts).uniform(1, 5, size=(4, prompts, pairs))
    got, expected = np.sort(ratio_draws(cells, 6000)), np.sort(brute_force(cells))
    # the same cells in another order are the same but for rounding
    distinct = np.diff(expected) > 1e-9
    places = ((expected[1:] + expected[:-1]) / 2)[distinct]
    apart = np.abs(
        np.searchsorted(got, places) / len(got) - np.searchsorted(expected, places) / len(expected)
    )
    assert apart.max() < 0.028  # Kolmogorov's distance of 6000 draws is larger once in 10,000


def test_intervals_are_the_same_each_time_and_hold_the_truth_as_often_as_they_say():
    noise = np.random.default_rng(3)
    held = 0
    for _ in range(200):
        # of prompts: the true ratio is that of their sums
        speeds = noise.lognormal(np.log(1.2), 0.3, size=24)
        works = [
            (
                {str(i): (100 * speed, 1.0) for i, speed in enumerate(speeds)},
                {str(i): (100.0, 1.0) for i in range(24)},
            )
        ]
        ratio = ratio_of_work(works, 400)
        assert ratio is not None
        assert ratio == ratio_of_work(works, 400)
        assert ratio.low is not None
        assert ratio.high is not None
        held += ratio.low <= 1.2 * np.exp(0.3**2 / 2) <= ratio.high
    assert 0.86 <= held / 200 <= 0.99  # percentile intervals of 24 blocks are a little narrow


def test_runs_that_drift_widen_the_interval():
    prompts = {str(i): (100.0, 1.0) for i in range(10)}
    drifting = [
        (dict.fromkeys(prompts, (100.0 * factor, 1.0)), prompts) for factor in (0.8, 1.0, 1.2)
    ]
    ratio = ratio_of_work(drifting)
    assert ratio is not None
    assert ratio.low == pytest.approx(0.8)
    assert ratio.high == pytest.approx(1.2)


def test_a_failed_parquet_leaves_no_ratio(tmp_path):
    folder = write_run(tmp_path / "a")
    (folder / "rounds.parquet").write_bytes(b"PAR1")
    (run,) = find_runs(tmp_path)
    assert work_of(run) == {}
    assert ratio_of([run], [run]) is None
    assert acceptance_of([run]).length is None
