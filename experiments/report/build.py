"""A report: from a folder of runs to its files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from experiments.config.checks import BadInput
from experiments.report.arms import arms_of
from experiments.report.baseline import baselines, parse_baseline
from experiments.report.headline import ReportRow, headline
from experiments.report.load import table
from experiments.report.notes import notes
from experiments.report.panel import Panel, Plot, View
from experiments.report.planned import not_run
from experiments.report.plots import PICTURES
from experiments.report.runs import Run, find_runs, first_line


@dataclass(frozen=True)
class Drawn:
    """A plot as drawn for a report."""

    plot: Plot
    panels: Sequence[Panel]  # none where the plot does not apply
    reason: str | None  # why it does not


@dataclass(frozen=True)
class Report:
    """A report's contents."""

    folder: Path
    runs: Sequence[Run]
    rows: Sequence[ReportRow]
    missing: Sequence[str]  # overrides of jobs that never ran
    notes: Sequence[str]
    command: str  # builds this report again

    @property
    def failed(self) -> list[Run]:
        return [run for run in self.runs if run.state != "ok"]

    @property
    def by_evidence(self) -> dict[str, Sequence[ReportRow]]:
        return {rows[0].arm.evidence: rows for rows in View(self.rows).by_evidence()}

    def draw(self) -> list[Drawn]:
        drawn = []
        for plot in PICTURES:
            made = plot.draw(View(self.rows))
            drawn.append(
                Drawn(plot, [], made) if isinstance(made, str) else Drawn(plot, made, None)
            )
        return drawn


def build(
    folder: Path,
    *,
    baseline: str | None = None,
    mix_versions: bool = False,
    out: Path | None = None,
) -> Report:
    """out: where it goes, None = folder/report. Raises BadInput: no such folder, a baseline that
    fits nothing, two versions of the code unless `mix_versions`."""
    try:
        runs = find_runs(folder)
    except ValueError as wrong:
        raise BadInput(str(wrong)) from wrong
    codes = sorted({run.code for run in runs if run.counts})
    if len(codes) > 1 and not mix_versions:
        raise BadInput(
            f"the runs are of {len(codes)} code versions ({difference(codes)}), expected one; "
            "--mix-versions takes them together"
        )
    arms = arms_of(runs)
    wanted = parse_baseline(baseline)
    rows = headline(arms, baselines(arms, wanted))
    command = [
        "python",
        "-m",
        "experiments.report",
        str(folder),
        *(["--baseline", baseline] if baseline else []),
    ]
    command += (["--mix-versions"] if mix_versions else []) + (["--out", str(out)] if out else [])
    return Report(
        folder, runs, rows, not_run(folder), notes(runs, rows, len(codes)), shlex.join(command)
    )


def difference(codes: Sequence[tuple[str, str]]) -> str:
    commits = sorted({commit for commit, _ in codes})
    return ", ".join(commits if len(commits) > 1 else [versions for _, versions in codes])


def results(report: Report) -> list[dict[str, Any]]:
    """Further columns of results.parquet, by run."""
    of_run = {run.folder: row for row in report.rows for run in row.arm.runs}
    extra = []
    for run in report.runs:
        row = of_run.get(run.folder)
        ratio, unlooped = (row.ratio, row.ratio_before_loops) if row else (None, None)
        extra.append(
            {
                "arm": row.arm.label if row else None,
                "parity": run.parity if row else None,
                "baseline": row.against if row else None,
                "arm_ratio": ratio.value if ratio else None,
                "arm_ratio_low": ratio.low if ratio else None,
                "arm_ratio_high": ratio.high if ratio else None,
                "arm_ratio_before_loops": unlooped.value if unlooped else None,
                "arm_acceptance_length_before_loops": row.acceptance.length if row else None,
                "arm_acceptance_by_position_before_loops": positions(row) if row else None,
            }
        )
    return extra


def positions(row: ReportRow) -> str:
    """What the plot of acceptance by position draws, as JSON."""
    return json.dumps(
        [
            vars(place) | {"conditional": place.conditional, "cumulative": place.cumulative}
            for place in row.acceptance.positions
        ]
    )


def results_table(report: Report) -> pl.DataFrame:
    return table(list(report.runs), results(report))


def trouble(run: Run) -> str:
    """One line: the last of a trace, which names the error."""
    if run.state == "running":
        return "running, or killed: it has not said how it ended"
    lines = (run.error or "").strip().splitlines()
    return first_line(lines[-1]) if lines else "no reason given"
