"""What a reader must know before any figure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from experiments.report.headline import ReportRow
from experiments.report.knobs import others_of
from experiments.report.runs import DATE, Run

LEAST_RUNS = 3
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
    if alone := [row.arm for row in rows if row.against is None and DATE in row.arm.values]:
        found.append(
            f"{len(alone)} of {len(arms)} arms have no ratio: their chat template writes the date, "
            f"and no baseline has theirs ({alone[0].values[DATE]}). Run them in one sweep, or give "
            f"both the same {DATE}."
        )
    bad = [arm for arm in arms if not arm.ranks]
    if bad:
        found.append(
            f"{len(bad)} of {len(arms)} arms do not rank: their tokens differ from plain decoding "
            "(invalid) or were not compared."
        )
    return found


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
