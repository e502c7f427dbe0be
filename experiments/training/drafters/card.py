"""The card of a drafter: what it is for, how it was trained, and its figures as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from experiments.training.drafters.recipe import DrafterRecipe

POINTS = 12  # of the loss curve
ROWS: list[tuple[str, Callable[[dict[str, Any]], str]]] = [
    (
        "given text, true tokens fed: accepted, positions 1 / 2 / 3",
        lambda one: _shares(one.get("teacher_forced")),
    ),
    (
        "own text, own drafts fed: accepted, positions 1 / 2 / 3",
        lambda one: _shares(one.get("own")),
    ),
    ("own text: first draft, novel tokens", lambda one: _share(one.get("own_novel_first"))),
    ("own text: share of novel tokens", lambda one: _share(one.get("own_novel_share"))),
    (
        "own text: tokens of a round of 3 drafts",
        lambda one: _share(one.get("mean_acceptance_length")),
    ),
    ("own text: tokens in the draft vocabulary", lambda one: _share(one.get("covered"))),
    ("own text: share after its first repeated 16-gram", lambda one: _share(one.get("repetition"))),
    ("own text: distinct 4-grams", lambda one: _share(one.get("distinct_4grams"))),
]


def table(found: dict[str, Any]) -> str:
    """Markdown, a column a kind of text."""
    lines = ["| | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    return "\n".join(
        [
            *lines,
            *(
                f"| {name} | " + " | ".join(cell(one) for one in found.values()) + " |"
                for name, cell in ROWS
            ),
        ]
    )


def card(
    target: str,
    recipe: DrafterRecipe,
    rows: int,
    history: Sequence[Sequence[float]],
    found: dict[str, Any],
) -> str:
    """target: its folder's name; rows: collected; history: step, minutes, loss."""
    what = "A Gemma 4 assistant" if recipe.style == "assistant" else "A Qwen-style MTP head"
    kept = (
        "every token"
        if recipe.draft_vocab is None
        else f"the {recipe.draft_vocab:,} most frequent tokens"
    )
    step, minutes, _ = history[-1]
    texts = sum(one.get("texts", 0) for one in found.values())
    chosen = (
        history
        if len(history) <= POINTS
        else [history[round(i * (len(history) - 1) / (POINTS - 1))] for i in range(POINTS)]
    )
    curve = "\n".join(f"| {at:.1f} | {number} | {loss:.2f} |" for number, at, loss in chosen)
    return f"""# A drafter for {target}

{what} for the frozen target `{target}`; it runs with no other: \
where the embedding's weights differ it is refused.
It drafts {kept}. Its weights began as a copy of the target's: \
the target's licence holds for them too.

## Recipe

`python -m experiments.train_drafter`, seed {recipe.seed}, {recipe.threads} thread. \
{rows:,} rows of {recipe.length} tokens with the
target's hidden rows: {recipe.given:.0%} given text throughout, the others \
greedy continuations of {recipe.prompt} tokens (stop ids
banned), of which {recipe.chat:.0%} are rendered with the target's chat template where it has one. \
{step:,} steps of {recipe.batch}
rows in {minutes:.0f} minutes of wall clock: the first drafts alone, then chains of \
{recipe.depth} as in use. Cross-entropy to the
target's distributions and smooth L1 to its hidden rows; Muon for matrices, \
AdamW for the rest, rate {recipe.rate:g}.

| minutes | step | loss |
|---|---|---|
{curve}

## Figures

{texts} held-out texts that the target wrote, and held-out given text. Acceptance by \
position is conditional on the drafts before.
*Novel*: tokens whose 4-gram is not yet in their text, the honest figure.

{table(found)}
"""


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _shares(values: list[float] | None) -> str:
    return "none" if values is None else " / ".join(f"{value:.2f}" for value in values)
