"""What is minimised: next tokens, unlikelihood of loops, the head's distance to its target."""

from __future__ import annotations

import torch
from einops import rearrange
from torch import Tensor
from torch.nn.functional import cross_entropy

from experiments.training.generate import continue_greedy
from experiments.training.trainable import (
    ChainTarget,
    TargetRows,
    TrainableDrafter,
    TrainableTarget,
)

DEPTH = 3  # chained steps the head is trained on
FADE = 0.8  # weight of each step relative to the one before


def next_token(model: TrainableTarget, ids: Tensor) -> Tensor:
    """Mean cross-entropy in nats, a scalar. ids: [batch, tokens + 1]."""
    logits = model.logits(model(ids[:, :-1])).float()
    return cross_entropy(
        rearrange(logits, "b t vocab -> (b t) vocab"), rearrange(ids[:, 1:], "b t -> (b t)")
    )


def repeats(ids: Tensor, size: int = 4) -> Tensor:
    """[batch, tokens] bool: the n-gram that ends here was in the row before."""
    marks = torch.zeros(ids.shape, dtype=torch.bool)
    for row, tokens in enumerate(ids.tolist()):
        seen: set[tuple[int, ...]] = set()
        for end in range(size, len(tokens) + 1):
            gram = tuple(tokens[end - size : end])
            marks[row, end - 1] = gram in seen
            seen.add(gram)
    return marks


def unlikelihood(model: TrainableTarget, prompts: Tensor, new: int) -> Tensor:
    """-log(1 - p) of the target's own greedy tokens that complete a 4-gram it has already written.

    After Welleck et al., 2019. prompts: [batch, tokens]; new: tokens written after each.
    """
    ids = continue_greedy(model, prompts, new)
    marks = repeats(ids)[:, prompts.shape[1] :]
    hidden = model(ids[:, :-1])[:, prompts.shape[1] - 1 :]
    chance = (
        model.logits(hidden).float().softmax(-1).gather(2, ids[:, prompts.shape[1] :, None])[..., 0]
    )
    lost = -torch.log((1 - chance).clamp(min=1e-4))
    return (lost * marks).sum() / marks.numel()


def distance(
    model: TrainableTarget, drafter: TrainableDrafter, ids: Tensor, depth: int = DEPTH
) -> Tensor:
    """`chained` with the target's rows of a text. ids: [batch, tokens]."""
    with torch.no_grad():
        read = model.read(ids)
    return chained(model, drafter, ids, read, depth)


def chained(
    target: ChainTarget,
    drafter: TrainableDrafter,
    ids: Tensor,
    read: TargetRows,
    depth: int = DEPTH,
) -> Tensor:
    """Cross-entropy of the chained drafts to the target's distributions, and the drafter's own
    losses.

    A scalar: the mean over steps with fading weights.

    ids: [batch, tokens]
    read: the target's rows of these tokens
    """
    with torch.no_grad():
        chances = target.logits(read.hidden).float().softmax(-1)
    total = torch.zeros(())
    for i, step in enumerate(drafter.chain(target, ids, read, depth)):
        after = slice(1 + i, 1 + i + step.hidden.shape[1])
        wanted = chances[:, after]
        far = -(wanted * step.logits.float().log_softmax(-1)).sum(-1).mean()
        total = total + FADE**i * (far + drafter.beside(step, read.hidden[:, after], wanted))
    return total / sum(FADE**i for i in range(depth))
