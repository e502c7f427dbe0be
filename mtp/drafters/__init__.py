"""Drafters: what proposes tokens."""

from __future__ import annotations

from pathlib import Path

from mtp.drafters.prompt_lookup import PromptLookup
from mtp.drafters.protocol import Drafter
from mtp.drafters.qwen_mtp import QwenMtp
from mtp.execution.buckets import Buckets
from mtp.targets.checkpoint import Checkpoint
from mtp.targets.protocol import Target

__all__ = ["Drafter", "PromptLookup", "QwenMtp", "load_prompt_lookup", "load_qwen_mtp", "no_drafter"]


def load_qwen_mtp(path: str | Path, target: Target, *, buckets: Buckets, weights: str | None = None, context: int | None = None) -> QwenMtp:
    """The MTP head of a Qwen checkpoint folder, bound to the target loaded from it. See `QwenMtp`.

    weights: another head for this target, a file in the folder; None: the checkpoint's own."""
    return QwenMtp(Checkpoint(path, weights), target, buckets=buckets, context=context)


def load_prompt_lookup(target: Target, *, buckets: Buckets, ngram: int = 3) -> PromptLookup:
    """Prompt look-up with a place for each of the target's slots."""
    return PromptLookup(slots=target.slots, context=target.limits.context, ngram=ngram, device=target.device)


def no_drafter(target: Target, *, buckets: Buckets) -> None:
    """`drafter=none`: plain decoding, whatever the policy asks for."""
    return None
