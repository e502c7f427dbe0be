"""What a drafter's card says: acceptance by position on held-out text."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.drafters.store import Store
from experiments.training.stats import WARM, after_repeat, conditional, distinct, walk
from experiments.training.trainable import TrainableDrafter
from mtp.metrics import new_grams

AT_ONCE = 16  # rows
NOVEL = 4  # a token is novel where the n-gram that it ends is new in its text


@torch.no_grad()
def stats(
    drafter: TrainableDrafter, target: FrozenTarget, store: Store, depth: int
) -> dict[str, Any]:
    """By kind of text. Rates are shares of 1, by position conditional on the drafts before.

    teacher_forced: on given text, the true tokens fed; right is the target's own choice there
    own: on the target's greedy text, the head's own drafts fed
    covered: own tokens that the draft vocabulary has
    """
    result: dict[str, Any] = {}
    known = torch.zeros(
        int(max(target.draft_vocab.max(), store.tokens.max())) + 1, dtype=torch.bool
    )
    known[target.draft_vocab] = True
    for kind in dict.fromkeys(row.kind for row in store.rows):
        given, own = (
            store.chosen(held_out=True, kind=kind, own=written) for written in (False, True)
        )
        found: dict[str, Any] = {}
        if len(given):
            found["teacher_forced"] = conditional(
                torch.cat(
                    [_taught(drafter, target, store, some, depth) for some in given.split(AT_ONCE)]
                )
            )
        if len(own):
            # [texts, anchors, depth]
            right = torch.cat(
                [_own(drafter, target, store, some, depth) for some in own.split(AT_ONCE)]
            )
            begins = [store.rows[number].begin for number in own.tolist()]
            texts = store.tokens[own].tolist()
            # anchor t drafts token t + 2; what counts begins with the target's second token, whose
            # anchor is its first
            new = [right[i, begin - 1 :] for i, begin in enumerate(begins)]
            novel = [
                new_grams(text, NOVEL)[begin + 1 :][: len(one)]
                for text, begin, one in zip(texts, begins, new, strict=True)
            ]
            first = torch.cat([one[:, 0] for one in new]).bool()
            marks = torch.tensor([mark for marks in novel for mark in marks])
            written = [text[begin:] for text, begin in zip(texts, begins, strict=True)]
            found |= {
                "own": conditional(torch.cat(new)),
                "own_novel_first": float(first[marks].float().mean()),
                "own_novel_share": float(marks.float().mean()),
                "mean_acceptance_length": _walk(new),
                "covered": float(
                    torch.cat([known[torch.tensor(text)] for text in written]).float().mean()
                ),
                "repetition": sum(map(after_repeat, written)) / sum(map(len, written)),
                "distinct_4grams": sum(distinct(torch.tensor([text])) for text in written)
                / len(written),
                "texts": len(own),
            }
        result[kind] = found
    return result


def _taught(
    drafter: TrainableDrafter, target: FrozenTarget, store: Store, places: Tensor, depth: int
) -> Tensor:
    """[texts, anchors, depth] int, cumulative."""
    ids, read = store.texts(places)
    labels = target.choices(read.hidden)
    picks = [target.draft_vocab[step.picks] for step in drafter.chain(target, ids, read, depth)]
    right = torch.stack(
        [pick == labels[:, 1 + i : 1 + i + pick.shape[1]] for i, pick in enumerate(picks)], -1
    )
    return right[:, WARM:].int().cumprod(-1)


def _own(
    drafter: TrainableDrafter, target: FrozenTarget, store: Store, places: Tensor, depth: int
) -> Tensor:
    ids, read = store.texts(places)
    after = store.tokens[places].long()
    drafts = [
        target.draft_vocab[step.picks] for step in drafter.chain(target, ids, read, depth, own=True)
    ]
    return (
        torch.stack(
            [pick == after[:, 2 + i : 2 + i + pick.shape[1]] for i, pick in enumerate(drafts)], -1
        )
        .int()
        .cumprod(-1)
    )


def _walk(accepted: list[Tensor]) -> float:
    """Tokens of a round with all drafts offered, mean over rounds of all texts."""
    lengths = [len(one) / walk(one.sum(-1)[None]) for one in accepted]  # rounds
    return sum(map(len, accepted)) / sum(lengths)
