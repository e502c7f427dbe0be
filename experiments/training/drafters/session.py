"""From a target and text to a sidecar: collect, fit, measure, write. Every part can be resumed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from experiments.config.checks import BadInput
from experiments.io import write_json, write_whole
from experiments.runs.progress import rate
from experiments.training.corpus import Document
from experiments.training.drafters.card import card
from experiments.training.drafters.collect import Collector
from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.drafters.loop import CHECKPOINT, Fit
from experiments.training.drafters.recipe import DrafterRecipe
from experiments.training.drafters.sidecar import WEIGHTS
from experiments.training.drafters.stats import stats
from experiments.training.drafters.store import Store
from experiments.training.drafters.texts import Cut, Prompt, prompts, read
from experiments.training.progress import Progress
from experiments.training.saved import recipe_in
from experiments.workloads.chat import chat_of
from experiments.workloads.tokenizer import load_tokenizer
from mtp.drafters.sidecar import about_target
from mtp.targets import load_target
from mtp.targets.loading.checkpoint import Checkpoint

Texts = dict[str, list[Document]]
COUNTED = 2_000_000  # characters of each kind whose tokens are counted for the draft vocabulary
DAY = date(2026, 1, 1)  # for chat templates that write today's: collecting may go on another day
COLLECTED = 10  # weight of the collected tokens there: fewer, but of the target's own


class Session:
    def __init__(
        self, recipe: DrafterRecipe, path: Path, dtype: str, out: Path, console: Console
    ) -> None:
        """Raises BadInput where `out` holds something else, ValueError for a target not served
        here.
        """
        self.recipe, self.out, self.console = recipe, out, console
        self.checkpoint = Checkpoint(path)
        if self.checkpoint.tokenizer is None:
            raise BadInput(
                f"target.path is {path}, which has no tokenizer.json, expected one: text has to "
                "become tokens"
            )
        self._take(out)
        self.style = style_of(self.checkpoint, recipe)
        torch.set_num_threads(recipe.threads)
        torch.manual_seed(recipe.seed)
        self.tokenizer = load_tokenizer(self.checkpoint.tokenizer)
        self.target = load_target(
            path, slots=recipe.slots, context=recipe.length + 1, dtype=dtype, rows=recipe.slots
        )

    def run(self) -> dict[str, Any]:
        """The figures of the sidecar that it leaves in `out`."""
        recipe, out = self.recipe, self.out
        texts = read(recipe.data)
        store = self._collected(texts)
        frozen = FrozenTarget(self.target, self._draft_vocab(store, texts))
        drafter: Any = self.style.start(self.target, frozen, store)
        with Progress(self.console, shown=True) as progress:
            fit = Fit(
                recipe,
                drafter,
                frozen,
                store,
                out,
                progress,
                lambda drafter, step: self.style.keep(drafter, out, step),
            )
            fit.run()
        self.console.print("measuring on held-out text")
        found = stats(drafter.eval(), frozen, store, recipe.depth)
        self.style.write(drafter, frozen, out)
        write_json(out / "figures.json", found)
        write_json(
            out / "training.json",
            {"recipe": recipe.as_dict(), "rows": len(store.rows), "history": fit.place.history},
        )
        written = card(self.checkpoint.path.name, recipe, len(store.rows), fit.place.history, found)
        write_whole(out / "README.md", written.encode())
        (out / CHECKPOINT).unlink(missing_ok=True)
        return found

    def _take(self, out: Path) -> None:
        checkpoint = out / CHECKPOINT
        if checkpoint.is_file():
            if recipe_in(checkpoint) != self.recipe.as_dict():
                raise BadInput(
                    f"out is {out}, which holds an unfinished training with other settings, "
                    "expected another folder"
                )
        elif (out / WEIGHTS).exists():
            raise BadInput(f"out is {out}, which holds a drafter, expected another folder")

    def _collected(self, texts: Texts) -> Store:
        recipe = self.recipe
        about = recipe.of_texts() | about_target(self.checkpoint) | {"text": _hash(texts)}
        hidden = self.target.hidden_size
        try:
            kv = {
                kind: (each.shape[1], each.shape[3])
                for kind in self.style.layer_types
                for each in self.target.kv(kind)[:1]
            }
            store = Store(
                self.out / "texts",
                about,
                rows=recipe.texts,
                length=recipe.length,
                hidden=hidden,
                kv=kv,
            )
        except ValueError as wrong:
            raise BadInput(f"out is {self.out}: {wrong}, expected another folder") from wrong
        if len(store.rows) < recipe.texts and not (self.out / CHECKPOINT).exists():
            began = time.monotonic()
            limit = 60 * recipe.collect_minutes if recipe.collect_minutes else float("inf")

            def report(rows: int, speed: float) -> None:
                self.console.print(
                    f"collected {rows} of {recipe.texts} texts, {rate(speed)} tokens/s",
                    highlight=False,
                    soft_wrap=True,
                )

            Collector(self.target, store, report).run(
                self._asked(texts, store), lambda: time.monotonic() - began > limit
            )
        if not len(store.chosen(held_out=False)) or not len(store.chosen(held_out=True)):
            raise BadInput(
                f"collect_minutes is {recipe.collect_minutes}, in which too few texts were "
                "collected, expected more"
            )
        return store

    def _asked(self, texts: Texts, store: Store) -> Iterator[tuple[int, bool, Prompt]]:
        """Number, split and prompt of the rows that are not there yet: held-out ones first."""
        recipe, done = self.recipe, {row.number for row in store.rows}
        render = chat_of(self.checkpoint.path, "auto", DAY) if recipe.chat else None
        cut = Cut(recipe.length, recipe.prompt, recipe.given, recipe.chat, recipe.seed)
        held_out, trained = (
            prompts(texts, self.tokenizer, render, cut, held_out=out) for out in (True, False)
        )
        for number in range(recipe.texts):
            out = number < recipe.held_out
            prompt = next(held_out if out else trained)
            if number not in done:
                yield number, out, prompt

    def _draft_vocab(self, store: Store, texts: Texts) -> Tensor | None:
        """[draft vocab] int64, ascending, the most frequent tokens; None: all.

        Of the collected rows, and of the text beyond them.
        """
        most, vocab = self.recipe.draft_vocab, self.target.limits.vocab
        if most is None or most >= vocab:
            return None
        counts = COLLECTED * torch.bincount(
            store.tokens[store.chosen(held_out=False)].flatten().long(), minlength=vocab
        )
        for documents in texts.values():
            left = COUNTED
            for one in documents:
                if not one.held_out and left > 0:
                    counts += torch.bincount(
                        torch.tensor(self.tokenizer.encode(one.text).ids, dtype=torch.long),
                        minlength=vocab,
                    )
                    left -= len(one.text)
        return torch.argsort(counts, descending=True, stable=True)[:most].sort().values


def style_of(checkpoint: Checkpoint, recipe: DrafterRecipe) -> Any:
    """Imported on first use: assistants need transformers. Raises BadInput for another target's."""
    if recipe.style == "assistant":
        from experiments.training.drafters.assistant_style import AssistantStyle

        return AssistantStyle(checkpoint, recipe)
    from experiments.training.drafters.qwen_style import QwenStyle

    return QwenStyle(checkpoint, recipe)


def _hash(texts: Texts) -> str:
    found = hashlib.sha256()
    for kind, documents in texts.items():
        for one in documents:
            found.update(json.dumps([kind, one.source, one.text]).encode())
    return found.hexdigest()
