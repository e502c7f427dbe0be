"""The training: three phases against one clock, resumable at any step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from experiments.training.corpus import Corpus, Windows
from experiments.training.generate import continue_greedy
from experiments.training.losses import DEPTH, distance, next_token, unlikelihood
from experiments.training.optimizer import Optimizer
from experiments.training.progress import Progress
from experiments.training.recipe import PHASES, Recipe
from experiments.training.saved import save, saved
from experiments.training.team import Team
from experiments.training.trainable import TrainableDrafter, TrainableTarget, family

CHECKPOINT = "checkpoint.pt"
# rows of an unlikelihood step; an eighth of a row's length is its prompt, half a length is new
LOOP_ROWS = 16
LOOP_RATE = 0.3  # of the target's rate
OWN_ROWS, OWN_PROMPT = 64, 32  # of a batch of continuations
OWN_SHARE = 0.2  # most of the head's time that they may take


@dataclass
class TrainingPosition:
    """How far a training is."""

    phase: int = 0
    step: int = 0
    spent_s: float = 0.0  # in this phase
    before_s: float = 0.0  # of the phases that are done
    loss: float = float("nan")
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    # phase, step, minutes in all, loss averaged over the last steps
    history: list[tuple[str, int, float, float]] = field(default_factory=list)


class Training:
    """One process of the team. With `steps`, the same recipe and text give the same weights."""

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        tokenizer: Tokenizer,
        out: Path,
        team: Team,
        progress: Progress,
    ) -> None:
        self.recipe, self.corpus, self.tokenizer = recipe, corpus, tokenizer
        self.out, self.team, self.progress = out, team, progress
        torch.manual_seed(recipe.seed)
        self.family = family(recipe.family)
        self.model: TrainableTarget = self.family.target(recipe.shape)
        self.head: TrainableDrafter = self.family.drafter(self.model)
        self.shares = {"code": 1 - recipe.prose, "prose": recipe.prose}
        self.place, self.own = TrainingPosition(), torch.zeros(0, dtype=torch.long)
        self.windows = Windows(corpus.train, self.shares, recipe.length + 1, recipe.seed)
        self.optimizer = Optimizer(self.model, recipe.rate, recipe.decay)
        self.saved = self.ticked = time.monotonic()

    def run(self) -> None:
        """From the folder's checkpoint to the finished folder."""
        self._restore()
        phases: list[Callable[[], None]] = [self._target, self._loops, self._head]
        while self.place.phase < len(phases):
            phases[self.place.phase]()
            self.place.before_s += self.place.spent_s
            self.place.phase, self.place.step, self.place.spent_s = self.place.phase + 1, 0, 0.0
            if self.place.phase < len(phases):
                self._enter(PHASES[self.place.phase])
                self._save()

    def _target(self) -> None:
        self._fit(self.model, lambda ids: next_token(self.model, ids), self.recipe.batch)

    def _loops(self) -> None:
        def loss(ids: Tensor) -> Tensor:
            rows, length = max(1, LOOP_ROWS // self.team.size), self.recipe.length
            return next_token(self.model, ids) + unlikelihood(
                self.model, ids[:rows, : length // 8], length // 2
            )

        self._fit(self.model, loss, self.recipe.batch)

    def _head(self) -> None:
        self.model.requires_grad_(False)
        if not len(self.own):
            self._continue()
        texts = self.corpus.train | {"own": self.own}
        shares = {kind: share / 2 for kind, share in self.shares.items()} | {"own": 0.5}
        seen = self.windows.seen
        self.windows = Windows(texts, shares, self.recipe.head_length, self.recipe.seed + 1)
        self.windows.seen.update({kind: count for kind, count in seen.items() if kind in texts})

        def loss(ids: Tensor) -> Tensor:
            return distance(
                self.model,
                self.head,
                ids,
                1 if self._progress() < self.recipe.head_first else DEPTH,
            )

        self._fit(self.head, loss, self.recipe.head_batch)

    def _enter(self, phase: str) -> None:
        """What a phase starts from."""
        if phase == "head":
            self.model.eval()
            self.head = self.family.drafter(self.model)
            self.optimizer = Optimizer(self.head, self.recipe.head_rate, self.recipe.decay)
            self.windows = Windows(
                self.corpus.train, self.shares, self.recipe.head_length, self.recipe.seed + 1
            )
        else:
            scale = LOOP_RATE if phase == "loops" else 1.0
            self.optimizer = Optimizer(self.model, self.recipe.rate * scale, self.recipe.decay)

    def _continue(self) -> None:
        """The target's own greedy text, from prompts of the training text; each process does a
        part.
        """
        recipe, prompts = (
            self.recipe,
            Windows(self.corpus.train, self.shares, OWN_PROMPT, self.recipe.seed + 2),
        )
        made: list[Tensor] = []
        rows = min(OWN_ROWS, recipe.own_texts)
        while len(made) * rows * self.team.size < recipe.own_texts and (
            not made or self._progress() < OWN_SHARE
        ):
            every = prompts.take(rows * self.team.size)
            with self._arithmetic():
                made.append(
                    self.team.gather(
                        continue_greedy(
                            self.model, self.team.share(every), recipe.head_length - OWN_PROMPT
                        )
                    )
                )
        self.own = torch.cat(made)

    def _fit(self, module: nn.Module, loss_of: Callable[[Tensor], Tensor], rows: int) -> None:
        place, phase = self.place, PHASES[self.place.phase]
        first, begun = place.step, time.monotonic()
        due = {at: name for at, name in self.family.snapshots.items() if phase == "head"}
        before = self._progress()
        while (done := self._progress()) < 1:
            for at in [at for at in due if at <= done]:
                name = due.pop(at)
                if (before < at or place.step == 0) and self.team.rank == 0:
                    self.family.write_drafter(self.head, self.out / self.family.drafters[name])
                    self.family.write(self.model, self.head, self.tokenizer, self.out)
            module.train()
            ids = self.team.share(self.windows.take(rows))
            with self._arithmetic():
                loss = loss_of(ids)
            loss.backward()
            self.team.average(self.optimizer.parameters)
            self.optimizer.step(done)
            place.step += 1
            place.tokens[phase] += ids.numel() * self.team.size
            value = float(loss.detach())
            place.loss = value if place.step == 1 else 0.97 * place.loss + 0.03 * value
            if place.step % 20 == 1:
                place.history.append(
                    (phase, place.step, (place.before_s + place.spent_s) / 60, place.loss)
                )
            left = (
                None
                if self.recipe.steps
                else max(0.0, 60 * self.recipe.minutes - place.before_s - place.spent_s)
            )
            speed = (place.step - first) * rows * ids.shape[1] / (time.monotonic() - begun)
            self.progress.show(phase, place.step, place.loss, speed, left)
            if time.monotonic() - self.saved >= self.recipe.save_s:
                self._save()
        module.eval()
        place.history.append((phase, place.step, (place.before_s + place.spent_s) / 60, place.loss))
        if self.team.rank == 0:
            self.family.write(self.model, self.head, self.tokenizer, self.out)

    def _arithmetic(self) -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.bf16)

    def _progress(self) -> float:
        """0 to 1 through the phase, the same in every process. Also moves the clock."""
        now = time.monotonic()
        self.place.spent_s, self.ticked = self.place.spent_s + now - self.ticked, now
        share = self.recipe.share(PHASES[self.place.phase])
        if self.recipe.steps:
            return self.place.step / max(1, round(self.recipe.steps * share))
        return self.team.agree(self.place.spent_s / (60 * self.recipe.minutes * share))

    def _save(self) -> None:
        self.saved = time.monotonic()
        if self.team.rank == 0:
            state: dict[str, Any] = {
                "recipe": self.recipe.as_dict(),
                "place": asdict(self.place),
                "model": self.model.state_dict(),
                "head": self.head.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "seen": self.windows.seen,
                "own": self.own,
                "random": torch.get_rng_state(),
            }
            save(state, self.out / CHECKPOINT)

    def _restore(self) -> None:
        file = self.out / CHECKPOINT
        if not file.is_file():
            return
        state = saved(file)
        self.place = TrainingPosition(**state["place"])
        self.model.load_state_dict(state["model"])
        self.head.load_state_dict(state["head"])
        if self.place.phase:
            self._enter(PHASES[self.place.phase])
            self.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.windows.seen.update(state["seen"])
        self.own = state["own"]
        torch.set_rng_state(state["random"])
        self.ticked = time.monotonic()
        self.progress.note(f"goes on in phase {PHASES[self.place.phase]} at step {self.place.step}")
