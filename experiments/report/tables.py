"""The headline table as Markdown and as LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from experiments.report.columns import COLUMNS
from experiments.report.headline import ReportRow

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "×": r"$\times$",
    "†": r"$\dagger$",
    "<": r"$<$",
    ">": r"$>$",
}
IN_PAPER = (
    "arm",
    "parity",
    "tokens/s",
    "ratio",
    "ratio before loops",
    "accept. length before loops",
    "novel",
    "rows wasted",
    "ITL p50 / p99",
)


def markdown(rows: Sequence[ReportRow]) -> str:
    lines = [
        "| " + " | ".join(column.name for column in COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    for row in rows:
        cells = [markdown_cell(column.cell(row)) for column in COLUMNS]
        if row.arm.parity == "invalid":
            cells = [f"~~{cell}~~" if cell and cell != "–" else cell for cell in cells]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def markdown_cell(text: str) -> str:
    return (
        escape(" ".join(text.split()), quote=False)
        .replace("|", "\\|")
        .replace("*", "\\*")
        .replace("`", "\\`")
    )


def latex(rows_by_evidence: dict[str, Sequence[ReportRow]]) -> str:
    r"""One table a kind of evidence. Needs \usepackage{booktabs} and, for invalid rows,
    \usepackage{soul}."""
    return "\n".join(latex_table(evidence, rows) for evidence, rows in rows_by_evidence.items())


def latex_table(evidence: str, rows: Sequence[ReportRow]) -> str:
    columns = [column for column in COLUMNS if column.name in IN_PAPER]
    lines = [
        f"% evidence: {evidence}",
        rf"\begin{{tabular}}{{ll{'r' * (len(columns) - 2)}}}",
        r"\toprule",
    ]
    lines += [" & ".join(latex_cell(column.name) for column in columns) + r" \\", r"\midrule"]
    for row in rows:
        cells = [latex_cell(column.cell(row)) for column in columns]
        if row.arm.parity == "invalid":
            cells = [rf"\st{{{cell}}}" for cell in cells]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def latex_cell(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in " ".join(text.split()))
