"""What the training of a drafter is.

Everything but `out` and the clock follows from it, the target and the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.config.checks import BadInput, choice, integer, number
from mtp.executor import MAX_DEPTH
from triton_kernels.launch import MOST_SLOTS

STYLES = ("qwen_mtp", "assistant")


@dataclass(frozen=True)
class DrafterRecipe:
    style: str  # qwen_mtp: a Qwen-style MTP head; assistant: a Gemma 4 assistant
    data: tuple[str, ...] | None  # files, None = the pinned corpus
    texts: int  # rows that are collected, the held-out ones among them
    held_out: int  # of them
    length: int  # tokens of a row
    prompt: int  # tokens of a prompt that the target continues
    given: float  # share of rows that are given text throughout
    # share of the other prompts that are rendered with the chat template, where there is one
    chat: float
    slots: int  # rows that are collected at once
    # of wall clock for collecting, None = until there are `texts` rows
    collect_minutes: float | None
    minutes: float  # of wall clock for training; the learning rates follow it
    steps: int | None  # optimizer steps instead of minutes: the same on every machine
    batch: int  # rows of a step
    depth: int  # chained steps that are trained
    rate: float
    decay: float
    # most tokens that are drafted, None = all of the target's; of style qwen_mtp
    draft_vocab: int | None
    clusters: int  # of the vocabulary, 0 = an unordered head; of style assistant
    top_clusters: int  # of them that have logits
    save_s: float  # seconds between checkpoints
    # steps between drafters that are kept in heads/, None = only the last one
    save_every: int | None
    seed: int
    threads: int

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DrafterRecipe:
        """Raises BadInput: one line that names key, value and what is allowed."""
        given = dict(values)
        if unknown := sorted(given.keys() ^ set(cls.__annotations__)):
            raise BadInput(
                f"{unknown[0]} is no key of train_drafter or missing, expected "
                f"{', '.join(cls.__annotations__)}"
            )
        choice("style", given["style"], STYLES)
        for key in ("texts", "held_out", "prompt", "batch", "threads"):
            integer(key, given[key], 1)
        for key in ("seed", "clusters"):
            integer(key, given[key], 0)
        integer("top_clusters", given["top_clusters"], 1, max(1, given["clusters"]))
        integer("slots", given["slots"], 1, MOST_SLOTS)
        integer("depth", given["depth"], 1, MAX_DEPTH)
        integer("length", given["length"], given["depth"] + 3)
        for key, least in (("steps", 1), ("draft_vocab", 1), ("save_every", 1)):
            if given[key] is not None:
                integer(key, given[key], least)
        for key in ("given", "chat", "decay", "save_s"):
            number(key, given[key], 0)
        for key in ("given", "chat"):
            if given[key] > 1:
                raise BadInput(f"{key} is {given[key]}, expected a share from 0 to 1")
        for key in ("minutes", "rate", "collect_minutes"):
            if given[key] is not None and number(key, given[key], 0) == 0:
                raise BadInput(f"{key} is {given[key]}, expected a finite number above 0")
        if given["prompt"] > given["length"] // 2:
            raise BadInput(
                f"prompt is {given['prompt']}, expected at most half of length ({given['length']})"
            )
        if given["held_out"] >= given["texts"]:
            raise BadInput(
                f"held_out is {given['held_out']}, expected less than texts ({given['texts']})"
            )
        data = given["data"]
        if data is not None and (
            not isinstance(data, list) or not data or not all(isinstance(one, str) for one in data)
        ):
            raise BadInput(
                f"data is {data!r}, expected a list of files, or null for the pinned text"
            )
        if missing := [one for one in data or () if not Path(one).is_file()]:
            raise BadInput(f"data names {missing[0]}, expected an existing file")
        return cls(**given | {"data": None if data is None else tuple(data)})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def of_texts(self) -> dict[str, Any]:
        """What the collected rows depend on, besides the target."""
        keys = ("data", "texts", "held_out", "length", "prompt", "given", "chat", "seed")
        return {
            key: list(value) if isinstance(value := getattr(self, key), tuple) else value
            for key in keys
        }
