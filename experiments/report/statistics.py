"""Paired ratios of speed, with an interval by block bootstrap over prompts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from experiments.bootstrap import Interval, ratio_draws
from experiments.report.acceptance import rounds_of
from experiments.report.runs import Run

RESAMPLES = 2000
FEW = 5  # prompts; with fewer an interval is a hint


@dataclass(frozen=True)
class RunRatio:
    """An arm's speed over its base's."""

    value: float
    low: float | None  # ends of the 95% interval; None: one prompt and one pair of runs
    high: float | None
    prompts: int  # what it rests on
    pairs: int  # of runs

    @property
    def few(self) -> bool:
        return self.prompts < FEW


Work = dict[str, tuple[float, float]]


def work_of(run: Run, *, before_loops: bool = False) -> Work:
    """By prompt: tokens its windows committed, and its seconds of them. A window's time is
    shared out by rows; all of it together is the run's decode time, so that tokens over seconds
    of all prompts is the run's own speed. before_loops: of rounds that begin before their text
    loops alone. Empty without rounds.parquet."""
    rounds = rounds_of(run)
    if rounds is None or not rounds.height:
        return {}
    share = (
        (pl.col("end_s") - pl.col("start_s")) * pl.col("rows") / pl.col("rows").sum().over("window")
    )
    shared = rounds.select("request", "committed", "looped", share.alias("seconds"))
    total = shared["seconds"].sum()
    scale = run.metrics["decode_s"] / total if total and run.metrics.get("decode_s") else 1.0
    counted = shared.filter(~pl.col("looped")) if before_loops else shared
    parts = counted.group_by("request").agg(pl.col("committed").sum(), pl.col("seconds").sum())
    hashes = {line["request"]: line["prompt_hash"] for line in run.texts}
    return {
        f"{name} {hashes.get(name)}": (tokens, seconds * scale)
        for name, tokens, seconds in parts.iter_rows()
    }


def paired(arm: Sequence[Run], base: Sequence[Run]) -> list[tuple[Run, Run]]:
    """The n-th run of a seed with the n-th of the same seed."""
    waiting: dict[object, list[Run]] = defaultdict(list)
    for run in base:
        waiting[run.seed].append(run)
    return [(run, waiting[run.seed].pop(0)) for run in arm if waiting[run.seed]]


def ratio_of(
    arm: Sequence[Run],
    base: Sequence[Run],
    resamples: int = RESAMPLES,
    *,
    before_loops: bool = False,
) -> RunRatio | None:
    """Speed of an arm over the base's, on the prompts and seeds both have; None where there are
    none. before_loops: see `work_of`."""
    works = [
        (work_of(run, before_loops=before_loops), work_of(other, before_loops=before_loops))
        for run, other in paired(arm, base)
    ]
    return ratio_of_work(works, resamples)


def why_no_ratio(arm: Sequence[Run], base: Sequence[Run]) -> str:
    """In words, of runs that `ratio_of` gives None for."""
    works = [(work_of(run), work_of(other)) for run, other in paired(arm, base)]
    if not works:
        return "no run of their baseline has their seed"
    if not any(work and other for work, other in works):
        return "rounds.parquet, theirs or the baseline's, is missing or has no rounds"
    if not any(work.keys() & other.keys() for work, other in works):
        return "their baseline decoded none of their prompts"
    return "their baseline committed nothing on their prompts"


def ratio_of_work(
    pairs: Sequence[tuple[Work, Work]], resamples: int = RESAMPLES
) -> RunRatio | None:
    """Both prompts and pairs of runs are drawn: see `ratio_draws`."""
    prompts = sorted({prompt for work, other in pairs for prompt in work.keys() & other.keys()})
    # tokens, seconds, the base's tokens, the base's seconds
    cells = np.zeros((4, len(prompts), len(pairs)))
    place = {prompt: i for i, prompt in enumerate(prompts)}
    for j, (work, other) in enumerate(pairs):
        for prompt in work.keys() & other.keys():
            cells[:, place[prompt], j] = (*work[prompt], *other[prompt])
    tokens, seconds, base_tokens, base_seconds = cells.sum(axis=(1, 2))
    if not min(seconds, base_tokens, base_seconds) > 0:
        return None
    value = float(tokens / seconds / (base_tokens / base_seconds))
    if len(prompts) < 2 and len(pairs) < 2:
        return RunRatio(value, None, None, len(prompts), len(pairs))
    interval = Interval.of(ratio_draws(cells, resamples))
    return RunRatio(value, interval.low, interval.high, len(prompts), len(pairs))
