"""The figures of a drafter as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ROWS: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    ("given text, true tokens fed: accepted, positions 1 / 2 / 3", lambda one: _shares(one.get("teacher_forced"))),
    ("own text, own drafts fed: accepted, positions 1 / 2 / 3", lambda one: _shares(one.get("own"))),
    ("own text: first draft, novel tokens", lambda one: _share(one.get("own_novel_first"))),
    ("own text: share of novel tokens", lambda one: _share(one.get("own_novel_share"))),
    ("own text: tokens of a round of 3 drafts", lambda one: _share(one.get("mean_acceptance_length"))),
    ("own text: tokens in the draft vocabulary", lambda one: _share(one.get("covered"))),
    ("own text: share after its first repeated 16-gram", lambda one: _share(one.get("repetition"))),
    ("own text: distinct 4-grams", lambda one: _share(one.get("distinct_4grams"))),
]


def table(found: dict[str, Any]) -> str:
    """Markdown, a column a kind of text."""
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(cell(one) for one in found.values()) + " |" for name, cell in ROWS)])


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _shares(values: list[float] | None) -> str:
    return "none" if values is None else " / ".join(f"{value:.2f}" for value in values)
