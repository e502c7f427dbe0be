"""What a tiny model's card says: how well its head drafts, and how its text repeats.

In fp32 on the stored weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from experiments.training.corpus import KINDS, Corpus
from experiments.training.generate import continue_greedy, spread
from experiments.training.losses import DEPTH, next_token
from experiments.training.trainable import TrainableDrafter, TrainableFamily, TrainableTarget
from mtp.metrics import new_grams

TEXTS, WINDOW = 64, 192  # held-out windows
PROMPT, NEW = 48, 128  # tokens of a continued text
WARM = 16  # first anchors of a window that are not counted: too little context


def stats(folder: Path, family: TrainableFamily) -> dict[str, Any]:
    """By kind of text: loss, repetition, and each drafter's acceptance. Rates are shares of 1."""
    model, _, tokenizer = family.read(folder)
    corpus = Corpus.load(tokenizer)
    result: dict[str, Any] = {}
    for kind in KINDS:
        held_out = corpus.held_out[kind]
        text = spread(held_out, TEXTS, WINDOW)
        own = continue_greedy(model, spread(held_out, TEXTS, PROMPT), NEW)
        heads = {
            name: family.read(folder, file)[1]
            for name, file in family.drafters.items()
            if (folder / file).is_file()
        }
        result[kind] = {
            "held_out_loss": loss(model, text),
            "repetition": sum(after_repeat(row[PROMPT:]) for row in own.tolist()) / (TEXTS * NEW),
            "distinct_4grams": distinct(own[:, PROMPT:]),
            "heads": {name: head_stats(model, head, text, own) for name, head in heads.items()},
        }
    return result


@torch.no_grad()
def loss(model: TrainableTarget, text: Tensor) -> float:
    """Nats per token."""
    return float(torch.stack([next_token(model, rows) for rows in text.split(16)]).mean())


@torch.no_grad()
def head_stats(
    model: TrainableTarget, head: TrainableDrafter, text: Tensor, own: Tensor
) -> dict[str, Any]:
    """Acceptance by position, each conditional on all drafts before it.

    teacher_forced: on held-out text, the true tokens fed; a draft is right if it is the target's
    own argmax there
    own: on the target's greedy text, the head's own drafts fed
    """
    taught = []
    for rows in text.split(16):
        read = model.read(rows)
        labels = model.logits(read.hidden).argmax(-1)
        picks = [step.picks for step in head.chain(model, rows, read, DEPTH)]
        taught.append(
            torch.stack(
                [pick == labels[:, 1 + i : 1 + i + pick.shape[1]] for i, pick in enumerate(picks)],
                -1,
            )
        )
    accepted = accepted_of(model, head, own)
    first = accepted[..., 0].bool()
    novel = torch.tensor([new_grams(row, 4) for row in own.tolist()])[
        :, PROMPT + 1 : PROMPT + 1 + first.shape[1]
    ]
    return {
        "teacher_forced": conditional(torch.cat(taught)[:, WARM:].int().cumprod(-1)),
        "own": conditional(accepted),
        "own_novel_first": float(first[novel].float().mean()),
        "own_novel_share": float(novel.float().mean()),
        "mean_acceptance_length": walk(accepted.sum(-1)),
    }


@torch.no_grad()
def accepted_of(model: TrainableTarget, head: TrainableDrafter, own: Tensor) -> Tensor:
    """[texts, anchors, DEPTH] int, 0 or 1: whether an anchor's drafts up to there are all right.

    Of the text's new part. own: [texts, tokens].
    """
    right = []
    for rows in own.split(16):
        drafts = [
            step.picks
            for step in head.chain(model, rows[:, :-1], model.read(rows[:, :-1]), DEPTH, own=True)
        ]
        right.append(
            torch.stack(
                [pick == rows[:, 2 + i : 2 + i + pick.shape[1]] for i, pick in enumerate(drafts)],
                -1,
            )
        )
    return torch.cat(right)[:, PROMPT - 1 :].int().cumprod(-1)


def conditional(accepted: Tensor) -> list[float]:
    """By position: the share of anchors that accept it, of those that accept all before.

    accepted: [.., depth] 0 or 1, cumulative
    """
    counts = rearrange(accepted, "... depth -> (...) depth").sum(0).tolist()
    offered = [accepted[..., 0].numel(), *counts[:-1]]
    return [count / max(1, before) for count, before in zip(counts, offered, strict=True)]


def walk(lengths: Tensor) -> float:
    """Tokens a round commits when every round offers DEPTH drafts.

    lengths: [texts, anchors], accepted drafts
    """
    rounds = tokens = 0
    for row in lengths.tolist():
        at = 0
        while at < len(row):
            rounds, tokens, at = rounds + 1, tokens + row[at] + 1, at + row[at] + 1
    return tokens / rounds


def after_repeat(text: list[int], length: int = 16) -> int:
    """Tokens after the first repeated 16-gram."""
    new = new_grams(text, length)
    return len(new) - 1 - new.index(False) if False in new else 0


def distinct(ids: Tensor) -> float:
    """Different 4-grams of all 4-grams, mean over texts."""
    grams = [list(zip(row, row[1:], row[2:], row[3:], strict=False)) for row in ids.tolist()]
    return sum(len(set(row)) / len(row) for row in grams) / len(grams)
