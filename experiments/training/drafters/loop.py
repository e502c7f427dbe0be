"""The fitting of a head to collected rows, against a clock or a number of steps; resumable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from experiments.training.corpus import Windows
from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.drafters.recipe import DrafterRecipe
from experiments.training.drafters.store import Store
from experiments.training.losses import chained
from experiments.training.optimizer import Optimizer
from experiments.training.progress import Progress
from experiments.training.saved import save, saved
from experiments.training.trainable import TrainableDrafter

CHECKPOINT = "checkpoint.pt"
FIRST_ALONE = 0.4  # of the steps: only the first draft of a chain is trained
SMOOTHING = 0.97


@dataclass
class FitPosition:
    """How far it is."""

    step: int = 0
    spent_s: float = 0.0
    loss: float = float("nan")
    # step, minutes, loss averaged over the last steps
    history: list[tuple[int, float, float]] = field(default_factory=list)


class Fit:
    """With `steps`, the same recipe, rows and drafter give the same weights, killed or not.

    keep: called with the drafter and the step, every `save_every` steps
    """

    def __init__(
        self,
        recipe: DrafterRecipe,
        drafter: TrainableDrafter,
        target: FrozenTarget,
        store: Store,
        out: Path,
        progress: Progress,
        keep: Callable[[Any, int], None],
    ) -> None:
        self.recipe, self.drafter, self.target = recipe, drafter, target
        self.store, self.out, self.progress = store, out, progress
        self.keep, self.place = keep, FitPosition()
        self.optimizer = Optimizer(drafter, recipe.rate, recipe.decay)
        # "texts" of one number: Windows gives every row once before any twice
        numbers = store.chosen(held_out=False)[:, None]
        self.order = Windows({"rows": numbers}, {"rows": 1.0}, 1, recipe.seed)
        self.ticked = self.saved = time.monotonic()

    def run(self) -> None:
        self._restore()
        recipe, place = self.recipe, self.place
        first, began = place.step, time.monotonic()
        while (done := self._progress()) < 1:
            rows = self.order.take(recipe.batch)[:, 0]
            ids, read = self.store.texts(rows)
            self.drafter.train()
            depth = 1 if done < FIRST_ALONE else recipe.depth
            with torch.autocast("cpu", torch.bfloat16):
                loss = chained(self.target, self.drafter, ids, read, depth)
            loss.backward()
            self.optimizer.step(done)
            place.step += 1
            value = float(loss.detach())
            place.loss = (
                value if place.step == 1 else SMOOTHING * place.loss + (1 - SMOOTHING) * value
            )
            if place.step % 10 == 1:
                place.history.append((place.step, place.spent_s / 60, place.loss))
            left = None if recipe.steps else max(0.0, 60 * recipe.minutes - place.spent_s)
            speed = (place.step - first) * ids.numel() / (time.monotonic() - began)
            self.progress.show("fit", place.step, place.loss, speed, left)
            if recipe.save_every and place.step % recipe.save_every == 0:
                self.keep(self.drafter, place.step)
            if time.monotonic() - self.saved >= recipe.save_s:
                self._save()
        place.history.append((place.step, place.spent_s / 60, place.loss))

    def _progress(self) -> float:
        """0 to 1. Also moves the clock."""
        now = time.monotonic()
        self.place.spent_s, self.ticked = self.place.spent_s + now - self.ticked, now
        return (
            self.place.step / self.recipe.steps
            if self.recipe.steps
            else self.place.spent_s / (60 * self.recipe.minutes)
        )

    def _save(self) -> None:
        self.saved = time.monotonic()
        state: dict[str, Any] = {
            "recipe": self.recipe.as_dict(),
            "place": asdict(self.place),
            "drafter": self.drafter.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "seen": self.order.seen,
        }
        save(state, self.out / CHECKPOINT)

    def _restore(self) -> None:
        file = self.out / CHECKPOINT
        if file.is_file():
            state = saved(file)
            self.place = FitPosition(**state["place"])
            self.drafter.load_state_dict(state["drafter"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.order.seen.update(state["seen"])
            self.progress.note(f"goes on at step {self.place.step}")
        self.ticked = time.monotonic()
