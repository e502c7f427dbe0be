"""What a reader must know before any figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from experiments.report.headline import ReportRow
from experiments.report.knobs import others_of
from experiments.report.runs import DATE, Run

LEAST_RUNS = 3
NAMED = 4  # arms that a note names
QUIET = 0.1  # plain decoding of the same requests may differ by that much from job to job


def notes(runs: Sequence[Run], rows: Sequence[ReportRow], codes: int) -> list[str]:
    """What a reader must know before any figure."""
    found = []
    arms = [row.arm for row in rows]
    if states := list(dict.fromkeys(run.state for run in runs if run.state != "ok")):
        counts = ", ".join(f"{sum(run.state == state for run in runs)} {state}" for state in states)
        found.append(f"Not all of {len(runs)} jobs are whole: {counts}. They are listed below.")
    if codes > 1:
        found.append(
            f"{codes} versions of the code are mixed, as asked: a difference between arms may be "
            "one of versions."
        )
    if any(run.code[0].endswith("+") for run in runs if run.counts):
        found.append(
            "The code had uncommitted changes: its commit (with +) does not tell it whole."
        )
    few = sum(len(arm.runs) < LEAST_RUNS for arm in arms)
    if few:
        found.append(
            f"{few} of {len(arms)} arms have fewer than {LEAST_RUNS} runs: differences between "
            "runs are not in their intervals."
        )
    if any(row.ratio and row.ratio.few for row in rows):
        found.append("† The interval rests on fewer than 5 prompts: a hint, not a finding.")
    if drift := machine_drift(rows):
        found.append(
            f"The machine was not quiet: plain decoding of the same requests ran up to {drift:.0%} "
            "faster in one job than in another. "
            "Where the ratio and × plain disagree, believe × plain, which compares within a job."
        )
    found += no_ratios(rows)
    if partial := [row.arm.label for row in rows if row.partial]:
        found.append(
            f"{some(partial, arms)}: their baseline lacks some of their runs or prompts, and ratio "
            "and rank rest on what both have."
        )
    if looped := [f"{row.arm.label} ({row.looped:.0%})" for row in rows if row.looped]:
        found.append(
            f"Text loops in {some(looped, arms)}, with the share of tokens from there on. "
            "tokens/s, ratio and × plain count them; the columns before loops leave them out."
        )
    if silent := [row.arm.label for row in rows if not row.arm.plain and undrafted(row)]:
        found.append(
            f"{some(silent, arms)}: no draft was ever verified. Their drafter proposed none or "
            "their policy had no use for any: they decoded plainly, and paid for what was asked."
        )
    if again := [run for run in runs if run.copies]:
        folders = sum(len(run.copies) for run in again)
        first = again[0]
        found.append(
            f"{folders} folders are copies: {len(again)} runs lie there more than once and count "
            f"once, by their run ids (run {first.metrics['run_id']}: {first.folder}, "
            f"{', '.join(map(str, first.copies))})."
        )
    bad = [arm for arm in arms if not arm.ranks]
    if bad:
        found.append(
            f"{len(bad)} of {len(arms)} arms do not rank: their tokens differ from plain decoding "
            "(invalid) or were not compared."
        )
    return found


def no_ratios(rows: Sequence[ReportRow]) -> list[str]:
    """A line for each reason that an arm has no ratio."""
    arms = [row.arm for row in rows]
    why: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        if row.no_ratio and row.against is None and DATE in row.arm.values:
            date = row.arm.values[DATE]
            why[
                f"their chat template writes the date, and no baseline has theirs ({date}). Run "
                f"them in one sweep, or give both the same {DATE}"
            ].append(row.arm.label)
        elif row.no_ratio:
            why[row.no_ratio].append(row.arm.label)
    return [
        f"{some(labels, arms)}: no ratio and no rank, {reason}." for reason, labels in why.items()
    ]


def some(labels: Sequence[str], arms: Sequence[object]) -> str:
    """How many arms, and which: the first few by name."""
    names = "; ".join(labels[:NAMED]) + (f"; {len(labels) - NAMED} more" * (len(labels) > NAMED))
    return f"{len(labels)} of {len(arms)} arms ({names})"


def undrafted(row: ReportRow) -> bool:
    return all(run.metrics.get("drafts_verified") == 0 for run in row.arm.runs)


def machine_drift(rows: Sequence[ReportRow]) -> float | None:
    """How much faster the fastest plain decoding of the same requests was than the slowest, over
    jobs that differ in policy alone, if that is more than `QUIET`."""
    plain: dict[object, list[float]] = defaultdict(list)
    for row in rows:
        for run in row.arm.runs:
            if run.metrics.get("plain_tokens_per_s"):
                plain[tuple(others_of(row).items()), run.seed].append(
                    run.metrics["plain_tokens_per_s"]
                )
    drift = max((max(speeds) / min(speeds) - 1 for speeds in plain.values()), default=0.0)
    return drift if drift > QUIET else None
