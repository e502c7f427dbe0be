"""The columns of the headline table, the same on the page, in report.md and in results.tex."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiments.report.headline import ReportRow
from experiments.report.statistics import RunRatio


@dataclass(frozen=True)
class Column:
    """A column of the report's table."""

    name: str
    help: str
    cell: Callable[[ReportRow], str]  # the text in a row
    value: Callable[[ReportRow], float | str | None]  # what the column sorts by


def number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def interval(ratio: RunRatio | None) -> str:
    if ratio is None:
        return "–"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f} [–]"
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]" + ("†" if ratio.few else "")


def both(pair: tuple[float | None, float | None]) -> str:
    return f"{number(pair[0], '.0f')} / {number(pair[1], '.0f')}"


COLUMNS = (
    Column(
        "#",
        "rank by ratio among arms with the same baseline",
        lambda r: number(r.rank, "d"),
        lambda r: r.rank,
    ),
    Column("arm", "what varies between the runs", lambda r: r.arm.label, lambda r: r.arm.label),
    Column(
        "parity",
        "tokens against plain decoding, one by one",
        lambda r: r.arm.parity,
        lambda r: r.arm.parity,
    ),
    Column(
        "tokens/s",
        "decode only, all runs together",
        lambda r: number(r.tokens_per_s, ".1f"),
        lambda r: r.tokens_per_s,
    ),
    Column(
        "ratio",
        "to the baseline, paired by prompt and seed, 95% interval",
        lambda r: "1 (baseline)" if r.is_baseline else interval(r.ratio),
        lambda r: r.ratio.value if r.ratio else None,
    ),
    Column(
        "tokens/s before loops",
        "without the rounds that begin after their text's first repeated 16-gram",
        lambda r: number(r.speed_before_loops, ".1f"),
        lambda r: r.speed_before_loops,
    ),
    Column(
        "ratio before loops",
        "the ratio without the rounds, of both arms, that begin after their text loops",
        lambda r: "1 (baseline)" if r.is_baseline else interval(r.ratio_before_loops),
        lambda r: r.ratio_before_loops.value if r.ratio_before_loops else None,
    ),
    Column(
        "× plain",
        "to the fastest plain decoding, timed in the same job",
        lambda r: number(r.over_plain, ".2f"),
        lambda r: r.over_plain,
    ),
    Column(
        "accept. length before loops",
        "1 + accepted / rounds, of rounds that begin before their text loops",
        lambda r: number(r.acceptance.length, ".2f"),
        lambda r: r.acceptance.length,
    ),
    Column(
        "novel",
        "acceptance of first drafts whose 4-gram is new",
        lambda r: number(r.novel, ".2f"),
        lambda r: r.novel,
    ),
    Column(
        "repetition",
        "share of tokens after the first repeated 16-gram",
        lambda r: number(r.repetition, ".2f"),
        lambda r: r.repetition,
    ),
    Column(
        "rows wasted",
        "of rows verified, padding included",
        lambda r: number(r.wasted, ".0%"),
        lambda r: r.wasted,
    ),
    Column("captures", "graph pairs captured", lambda r: str(r.captures), lambda r: r.captures),
    Column("TTFT p50 / p99", "ms", lambda r: both(r.ttft), lambda r: r.ttft[0]),
    Column("ITL p50 / p99", "ms between two deliveries", lambda r: both(r.itl), lambda r: r.itl[0]),
    Column(
        "runs × prompts",
        "what the ratio rests on",
        lambda r: f"{r.ratio.pairs} × {r.ratio.prompts}" if r.ratio else f"{len(r.arm.runs)} × –",
        lambda r: r.ratio.pairs if r.ratio else len(r.arm.runs),
    ),
)
