"""Embedding and head: whether they are one tensor is decided by what is stored, as transformers
does it, not by config.json's flag alone."""

from __future__ import annotations

from torch import Tensor

from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.notes import note
from mtp.targets.loading.weights import EMBEDDING, HEAD, Weights


def may_lack(checkpoint: Checkpoint, tied: bool) -> list[str]:
    """Of a tied pair one is enough, whichever it is. tied: tie_word_embeddings."""
    if not tied:
        return []
    return [EMBEDDING if checkpoint.holds(HEAD) and not checkpoint.holds(EMBEDDING) else HEAD]


def embedding_and_head(w: Weights, tied: bool) -> tuple[Tensor, Tensor]:
    """[vocab, hidden] each; one tensor where only one is stored, or two that are equal."""
    embedding, head = EMBEDDING if EMBEDDING in w else HEAD, name_of_head(w, tied)
    first = w.tensor(embedding)
    return first, first if head == embedding else w.tensor(head)


def name_of_head(w: Weights, tied: bool) -> str:
    """The stored tensor that makes logits; a note where it is not the one that the flag says."""
    if HEAD not in w or (EMBEDDING in w and w.same(EMBEDDING, HEAD)):
        return EMBEDDING
    if tied and EMBEDDING in w:
        note(
            f"checkpoint {w.folder}: tie_word_embeddings is true, but {HEAD} differs from "
            f"{EMBEDDING}: the stored head is used"
        )
    return HEAD
