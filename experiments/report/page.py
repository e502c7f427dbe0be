"""The page: one HTML file that opens anywhere, and report.md with the same figures."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from experiments.report.build import Drawn, Report, trouble
from experiments.report.columns import COLUMNS
from experiments.report.draw_plotly import figure, height
from experiments.report.tables import markdown, markdown_cell

HERE = Path(__file__).parent
TEXTS, LETTERS = 8, 400


def html(report: Report, drawn: list[Drawn]) -> str:
    environment = Environment(
        loader=FileSystemLoader(HERE / "template"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    panels = [panel for one in drawn for panel in one.panels]
    return environment.get_template("page.html.j2").render(
        report=report,
        drawn=drawn,
        columns=COLUMNS,
        trouble=trouble,
        height=height,
        texts=texts(report),
        css=Markup((HERE / "template" / "page.css").read_text(encoding="utf-8")),
        js=Markup((HERE / "template" / "page.js").read_text(encoding="utf-8")),
        plotly=Markup(get_plotlyjs()) if panels else "",
        figures=Markup(
            json.dumps([figure(panel) for panel in panels])
            .replace("<", "\\u003c")
            .replace("\u2028", " ")
        ),
    )


def texts(report: Report) -> list[tuple[str, str]]:
    """The beginning of what a few requests gave, of the first run that ranks."""
    runs = [row.arm.runs[0] for row in report.rows if row.arm.ranks]
    lines = runs[0].texts[:TEXTS] if runs else []
    return [(str(line["request"]), str(line.get("text", ""))[:LETTERS]) for line in lines]


def text(report: Report, drawn: list[Drawn]) -> str:
    """report.md"""
    parts = [
        f"# Report of {markdown_cell(report.folder.name)}",
        *(f"- {markdown_cell(note)}" for note in report.notes),
    ]
    if not report.rows:
        parts.append("No run has figures.")
    for evidence, rows in report.by_evidence.items():
        parts += [f"\n## Speed, evidence: {evidence}\n", markdown(rows)]
    for one in drawn:
        parts.append(f"\n## {one.plot.title}\n")
        if one.reason:
            parts.append(f"Not drawn: {one.reason}.")
        else:
            kinds = ", ".join(dict.fromkeys(panel.evidence for panel in one.panels))
            parts += [
                f"{one.plot.says} Evidence: {kinds}.\n",
                f"![{one.plot.title}](plots/{one.plot.key}.svg)",
            ]
    if report.failed or report.missing:
        parts.append("\n## Failed, unfinished and not run\n")
        parts += [
            f"- {run.state}: {markdown_cell(run.folder.name)}: {markdown_cell(trouble(run))}"
            for run in report.failed
        ]
        parts += [f"- not run: {markdown_cell(job)}" for job in report.missing]
    parts.append(f"\nMade by: `{report.command}`\n")
    return "\n".join(parts)
