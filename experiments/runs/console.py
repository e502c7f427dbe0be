"""What a person sees at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.runs.progress import rate


def show_run(
    console: Console,
    metrics: dict[str, Any],
    text: str,
    request: str,
    folder: Path,
    said: Sequence[str],
) -> None:
    """The text of one request, the figures, the parity verdict, where the files are, and what else
    is said."""
    console.print()
    console.rule(Text(f"text of {request}"), align="left")
    console.print(Text(text))
    console.rule(align="left")
    console.print(_figures(metrics))
    if metrics["acceptance_by_position"]:
        console.print(_positions(metrics["acceptance_by_position"]))
    console.print(verdict(metrics["parity"]))
    for line in (f"files: {folder}", *said):
        console.print(Text(line), soft_wrap=True)


def verdict(parity: dict[str, Any]) -> Text:
    if not parity["checked"]:
        return Text("parity: not checked", style="yellow")
    if parity["exact"]:
        count = parity["checked"]
        return Text(
            f"parity: exact, {count} of {count} requests equal plain decoding token by token",
            style="green",
        )
    if parity["label"] == "numerically equal":
        count = f"{parity['differing']} of {parity['checked']} requests differ"
        return Text(
            f"parity: numerically equal, {count}, by at most {parity['gap']:.3g} in logits",
            style="yellow",
        )
    first = parity["first_difference"]
    where = (
        f"{first['request']} differs at token {first['index']} (plain {first['plain']}, here "
        f"{first['run']})"
    )
    return Text(f"parity: NOT exact, {where}", style="bold red")


def _figures(metrics: dict[str, Any]) -> Table:
    plain, speed = metrics["plain_tokens_per_s"], metrics["tokens_per_s"]
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in (
        ("tokens/s (decode)", _speed(speed)),
        ("fastest plain decoding", _speed(plain)),
        ("ratio", _number(speed / plain if speed and plain else None, ".2f")),
        ("mean acceptance length", _number(metrics["mean_acceptance_length"], ".2f")),
        ("acceptance, novel tokens", _number(metrics["acceptance_novel"], ".2f")),
        ("repetition", _number(metrics["repetition"], ".2f")),
        (
            "rows kept of rows verified",
            f"{metrics['rows_kept']} of {metrics['rows_verified']} (and {metrics['rows_padded']} "
            "padding)",
        ),
        ("windows", str(metrics["windows"])),
        ("tokens committed", str(metrics["tokens_committed"])),
        ("evidence", f"{metrics['evidence']}, {metrics['device']}"),
    ):
        table.add_row(name, value)
    return table


def _positions(positions: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "draft", "offered", "accepted", "conditional", "cumulative", box=None, padding=(0, 2)
    )
    for row in positions:
        rates = (_number(row["conditional"], ".2f"), _number(row["cumulative"], ".2f"))
        table.add_row(str(row["position"]), str(row["offered"]), str(row["accepted"]), *rates)
    return table


def _speed(value: float | None) -> str:
    return rate(value) if value is not None and value < 10 else _number(value, ".1f")


def _number(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)
