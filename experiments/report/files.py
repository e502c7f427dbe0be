"""All files of a report."""

from __future__ import annotations

import io
from pathlib import Path

from experiments.io import write_whole
from experiments.report.build import build, results_table
from experiments.report.draw_matplotlib import save
from experiments.report.page import html, text
from experiments.report.tables import latex


def write(
    folder: Path,
    out: Path | None = None,
    *,
    baseline: str | None = None,
    mix_versions: bool = False,
) -> str:
    """index.html, report.md, results.parquet, results.tex and plots/ in `out` (folder/report),
    each written whole. Returns what was made, in words. Raises BadInput."""
    report = build(folder, baseline=baseline, mix_versions=mix_versions, out=out)
    out = out or folder / "report"
    drawn = report.draw()
    plots = out / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    for one in drawn:
        if one.panels:
            save(one.panels, plots / one.plot.key)
        else:  # of an earlier report
            for kind in ("svg", "pdf"):
                (plots / f"{one.plot.key}.{kind}").unlink(missing_ok=True)
    table = io.BytesIO()
    results_table(report).write_parquet(table)
    write_whole(out / "results.parquet", table.getvalue())
    write_whole(out / "results.tex", latex(report.by_evidence).encode())
    write_whole(out / "report.md", text(report, drawn).encode())
    write_whole(out / "index.html", html(report, drawn).encode())
    count = sum(bool(one.panels) for one in drawn)
    summary = (
        f"{len(report.runs)} runs, {len(report.rows)} arms, {len(report.failed)} not whole, "
        f"{len(report.missing)} not run, {count} plots"
    )
    return f"{summary}: {out / 'index.html'}"
