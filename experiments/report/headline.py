"""The headline table: a row per arm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from experiments.report.acceptance import Acceptance, acceptance_of
from experiments.report.arms import Arm
from experiments.report.statistics import RunRatio, Work, ratio_of, why_no_ratio, work_of
from mtp.metrics import rate

NO_BASELINE = "no arm with the right tokens can be their baseline"


@dataclass(frozen=True)
class ReportRow:
    """An arm's figures. Times in ms; latencies are medians over the arm's runs."""

    arm: Arm
    tokens_per_s: float | None
    against: str | None  # the baseline's label
    ratio: RunRatio | None
    no_ratio: str | None  # why there is none: such an arm does not rank
    partial: bool  # the ratio rests on some of its runs or prompts: the baseline lacks the others
    looped: float  # share of its tokens that came in rounds which began after their text looped
    speed_before_loops: float | None  # tokens/s without those rounds
    ratio_before_loops: RunRatio | None
    over_plain: float | None  # speed over plain decoding timed in the same job
    acceptance: Acceptance
    novel: float | None
    repetition: float | None
    wasted: float | None  # share of verified rows, padding included, that were not kept
    captures: int
    hit_rate: float | None
    ttft: tuple[float | None, float | None]
    itl: tuple[float | None, float | None]
    rank: int | None = None  # 1: fastest of those with the same baseline; None: does not rank

    @property
    def is_baseline(self) -> bool:
        return self.against == self.arm.label


def headline(arms: Sequence[Arm], against: dict[str, Arm]) -> list[ReportRow]:
    """Each baseline and, below it, those measured against it, fastest first; those that do not
    rank last."""
    rows = [row_of(arm, against.get(arm.label)) for arm in arms]
    ranks: dict[str, int] = {}
    for base in {row.against for row in rows}:
        ranking = sorted(
            (row for row in rows if row.against == base and row.arm.ranks and row.ratio),
            key=over_baseline,
            reverse=True,
        )
        ranks |= {row.arm.label: place for place, row in enumerate(ranking, start=1)}
    ranked = [replace(row, rank=ranks.get(row.arm.label)) for row in rows]
    bases = list(dict.fromkeys(row.against for row in rows))
    return sorted(
        ranked,
        key=lambda row: (
            bases.index(row.against),
            not row.is_baseline,
            row.rank is None,
            row.rank or 0,
        ),
    )


def over_baseline(row: ReportRow) -> float:
    return row.ratio.value if row.ratio else 0.0


def row_of(arm: Arm, base: Arm | None) -> ReportRow:
    metrics = [run.metrics for run in arm.runs]
    works = [(work_of(run), work_of(run, before_loops=True)) for run in arm.runs]
    tokens, _ = added(whole for whole, _ in works)
    unlooped, unlooped_s = added(before for _, before in works)
    prompts = {prompt for whole, _ in works for prompt in whole}
    ratio = ratio_of(arm.runs, base.runs) if base else None
    committed, seconds = total(metrics, "tokens_committed"), total(metrics, "decode_s")
    hits, misses = (
        sum((each.get("layouts") or {}).get(name) or 0 for each in metrics)
        for name in ("hits", "misses")
    )
    verified = total(metrics, "rows_verified") + total(metrics, "rows_padded")
    over = [
        each["tokens_per_s"] / plain
        for each in metrics
        if each.get("tokens_per_s") and (plain := each.get("plain_tokens_per_s"))
    ]
    return ReportRow(
        arm=arm,
        tokens_per_s=rate(committed, seconds),
        against=base.label if base else None,
        ratio=ratio,
        no_ratio=None if ratio else why_no_ratio(arm.runs, base.runs) if base else NO_BASELINE,
        partial=ratio is not None and (ratio.pairs, ratio.prompts) != (len(works), len(prompts)),
        looped=1 - unlooped / tokens if tokens else 0.0,
        speed_before_loops=rate(unlooped, unlooped_s),
        ratio_before_loops=ratio_of(arm.runs, base.runs, before_loops=True) if base else None,
        over_plain=middle(over),
        acceptance=acceptance_of(arm.runs),
        novel=middle([each.get("acceptance_novel") for each in metrics]),
        repetition=middle([each.get("repetition") for each in metrics]),
        wasted=rate(verified - total(metrics, "rows_kept"), verified),
        captures=sum((each.get("layouts") or {}).get("captures") or 0 for each in metrics),
        hit_rate=rate(hits, hits + misses),
        ttft=latency(metrics, "ttft_ms"),
        itl=latency(metrics, "itl_ms"),
    )


def added(works: Iterable[Work]) -> tuple[float, float]:
    """Tokens and seconds of all prompts."""
    parts = [part for work in works for part in work.values()]
    return sum(tokens for tokens, _ in parts), sum(seconds for _, seconds in parts)


def total(metrics: Sequence[dict[str, Any]], name: str) -> float:
    return sum(each.get(name) or 0 for each in metrics)


def latency(metrics: Sequence[dict[str, Any]], name: str) -> tuple[float | None, float | None]:
    figures = [((each.get("latency") or {}).get(name)) or {} for each in metrics]
    return middle([each.get("p50") for each in figures]), middle(
        [each.get("p99") for each in figures]
    )


def middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
