"""The model card: measures a folder and writes its figures.json and README.md.

`python -m experiments.training.card DIR`
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from textwrap import fill
from typing import Any

import torch

from experiments.io import write_json, write_whole
from experiments.training.corpus import KINDS, documents, packed
from experiments.training.stats import NEW, PROMPT, TEXTS, stats
from experiments.training.trainable import TrainableFamily, family

WANTED = {"code": 0.65, "prose": 0.6}  # first-draft acceptance on the target's own novel tokens
POINTS = 16  # of the loss curve
WIDTH = 130  # of a line of text


def write_card(folder: Path) -> dict[str, Any]:
    """Needs training.json beside the weights. Returns the figures."""
    training = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    found = stats(folder, family(training["recipe"]["family"]))
    write_json(folder / "figures.json", found)
    write_whole(folder / "README.md", card(found, training, folder).encode())
    return found


def card(found: dict[str, Any], training: dict[str, Any], folder: Path) -> str:
    size = (
        sum(
            file.stat().st_size
            for file in folder.rglob("*")
            if file.suffix in (".json", ".safetensors")
        )
        / 1e6
    )
    recipe = training["recipe"]
    kind = family(recipe["family"])
    sections = [
        f"# {kind.name}",
        *map(
            wrapped,
            kind.about(recipe["shape"], (folder / "model.safetensors").stat().st_size / 1e6, size),
        ),
        data_section(),
        recipe_section(recipe, training["tokens"], training.get("notes", []), kind),
        curve_section(training["history"]),
        stats_section(found, kind),
    ]
    return "\n\n".join(sections) + "\n"


def recipe_section(
    recipe: dict[str, Any], tokens: dict[str, int], notes: list[str], kind: TrainableFamily
) -> str:
    seen = {phase: f"{count / 1e6:.1f} million tokens" for phase, count in tokens.items()}
    alone = (
        f", in the first {recipe['head_first']:.0%} only the first" if recipe["head_first"] else ""
    )
    processes = "1 process" if recipe["workers"] == 1 else f"{recipe['workers']} processes"
    phases = [
        f"1. *target*: next tokens, {seen['target']}, rows of {recipe['length']} tokens, "
        f"{recipe['prose']:.0%} of them prose; Muon for the "
        f"matrices, AdamW for the rest, rate {recipe['rate']:g};",
        f"2. *loops*: {seen['loops']} more, each step also with unlikelihood of the repeated "
        "4-grams of its own greedy text;",
        f"3. *head*: {seen['head']}, the target frozen; three chained steps as in use{alone}, "
        "cross-entropy to the target's "
        f"distributions{kind.beside}; half of the rows are the target's own continuations.",
    ]
    begin = (
        f"`python -m experiments.train model={kind.name} minutes={recipe['minutes']:g}`, seed "
        f"{recipe['seed']}, {processes} of one thread, "
        "on two cores that had other work to do as well: left alone they see more tokens in these "
        "minutes. Three phases against one clock:"
    )
    lines = ["## Recipe", "", wrapped(begin), *(wrapped(phase, "   ") for phase in phases)]
    return "\n".join([*lines, *(f"\n{wrapped(note)}" for note in notes)])


def data_section() -> str:
    lines = [
        "## Data and licences",
        "",
        "Pinned in `experiments/assets/corpus/`, split by file. Millions of characters, trained on "
        "/ held out:",
        "",
    ]
    lines += ["| kind | licence | trained on | held out |", "|---|---|---|---|"]
    for kind in KINDS:
        found = documents(kind)
        for licence in sorted({one.licence for one in found}):
            parts = [
                sum(
                    len(one.text) for one in found if one.licence == licence and one.held_out is out
                )
                / 1e6
                for out in (False, True)
            ]
            lines.append(f"| {kind} | {licence} | {parts[0]:.2f} | {parts[1]:.2f} |")
    sums = [
        f"- `{kind}.jsonl.xz`: {hashlib.sha256(packed(kind).read_bytes()).hexdigest()}"
        for kind in KINDS
    ]
    return "\n".join(
        [
            *lines,
            "",
            "SHA-256 of the files:",
            "",
            *sums,
            "",
            "The weights are under the project's licence, Apache-2.0.",
        ]
    )


def curve_section(history: list[list[Any]]) -> str:
    """Loss by minutes, smoothed over about 30 steps."""
    last = len(history) - 1
    chosen = (
        [history[round(i * last / (POINTS - 1))] for i in range(POINTS)]
        if last >= POINTS
        else history
    )
    lines = [
        "## Loss",
        "",
        "The three phases have different losses.",
        "",
        "| minutes | phase | step | loss |",
        "|---|---|---|---|",
    ]
    return "\n".join(
        [
            *lines,
            *(
                f"| {minutes:.1f} | {phase} | {step} | {loss:.3f} |"
                for phase, step, minutes, loss in chosen
            ),
        ]
    )


def stats_section(found: dict[str, Any], kind: TrainableFamily) -> str:
    lines = [
        "## Figures",
        "",
        f"{TEXTS} held-out texts of each kind. Acceptance by position is conditional on the drafts "
        f"before. *Own text*: {NEW} greedy tokens",
        f"after {PROMPT} held-out ones. *Novel*: tokens whose 4-gram is not yet in their text, the "
        "honest figure.",
        "",
        "| | " + " | ".join(found) + " |",
        "|---|" + "---|" * len(found),
    ]

    def row(name: str, cells: list[str]) -> None:
        lines.append(f"| {name} | " + " | ".join(cells) + " |")

    row("held-out loss, nats per token", [f"{one['held_out_loss']:.2f}" for one in found.values()])
    row(
        "share of own text after its first repeated 16-gram",
        [f"{one['repetition']:.2f}" for one in found.values()],
    )
    row("distinct 4-grams of own text", [f"{one['distinct_4grams']:.2f}" for one in found.values()])
    for name in next(iter(found.values()))["heads"]:
        heads = [one["heads"][name] for one in found.values()]
        row(
            f"{name}: teacher-forced, positions 1/2/3",
            [_three(head["teacher_forced"]) for head in heads],
        )
        row(f"{name}: own text, positions 1/2/3", [_three(head["own"]) for head in heads])
        row(
            f"{name}: first draft, novel tokens of own text",
            [f"{head['own_novel_first']:.2f}" for head in heads],
        )
        row(
            f"{name}: tokens per round of 3 drafts",
            [f"{head['mean_acceptance_length']:.2f}" for head in heads],
        )
    best = list(kind.drafters)[-1]
    row(
        "share of novel tokens in own text",
        [f"{one['heads'][best]['own_novel_share']:.2f}" for one in found.values()],
    )
    looped = ", ".join(f"{one['repetition']:.0%} of its {text}" for text, one in found.items())
    loops = (
        f"Greedy text still loops: {looped} comes after a repeated 16-gram. "
        "Against it there are the small vocabulary, few passes"
    )
    lines += [
        "",
        wrapped(f"{loops} over the text, and phase 2."),
        *(["", kind.measured.strip()] if kind.measured else []),
    ]
    for text, least in WANTED.items():
        got = found[text]["heads"][best]["own_novel_first"]
        verdict = "met" if got >= least else "missed"
        lines += [
            "",
            f"Wanted on novel tokens of {text}: at least {least:.2f}; {got:.2f}: {verdict}.",
        ]
    return "\n".join(lines)


def wrapped(text: str, indent: str = "") -> str:
    return fill(
        text, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def _three(shares: list[float]) -> str:
    return " / ".join(f"{share:.2f}" for share in shares)


if __name__ == "__main__":
    torch.set_num_threads(2)
    write_card(Path(sys.argv[1]))
