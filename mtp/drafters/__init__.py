"""Drafters: what proposes tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtp.buckets import Buckets
from mtp.drafters.assistant_config import AssistantConfig
from mtp.drafters.gemma_assistant import GemmaAssistant
from mtp.drafters.prompt_lookup import PromptLookup, check_ngram
from mtp.drafters.qwen_mtp import QwenMtp, head_config
from mtp.drafters.sidecar import check_target_of, draft_vocab_of
from mtp.targets.families import text_config
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.protocol import Target


def load_qwen_mtp(
    path: str | Path,
    target: Target,
    *,
    buckets: Buckets,
    weights: str | None = None,
    context: int | None = None,
) -> QwenMtp:
    """The MTP head of a checkpoint folder, or of a sidecar trained for its target. See `QwenMtp`.

    weights: another head for this target, a file in the folder; None: the checkpoint's own.
    """
    return QwenMtp(Checkpoint(path, weights), target, buckets=buckets, context=context)


def check_qwen_mtp(
    path: str | Path, target: Checkpoint, *, weights: str | None = None, context: int | None = None
) -> None:
    """Raises ValueError, one line, before any weight is read: no MTP head, or another target's."""
    checkpoint = Checkpoint(path, weights)
    if not checkpoint.holds("mtp."):
        left = [name for name in checkpoint.left_out if name.endswith(".safetensors")]
        raise ValueError(
            f"checkpoint {checkpoint.path} has no MTP head, "
            "expected tensors mtp.*, or drafter=prompt_lookup or none"
            + (f"; its index leaves out {', '.join(left)}" if left else "")
        )
    config, targets = head_config(checkpoint), text_config(target)
    if (config.hidden, config.vocab) != (targets.hidden, targets.vocab):
        raise ValueError(
            f"the MTP head of {checkpoint.path} is for a target of hidden size {config.hidden} and "
            f"{config.vocab} tokens, but {target.path} has {targets.hidden} and {targets.vocab}: "
            "expected the target it was trained with"
        )
    draft_vocab_of(checkpoint)
    check_target_of(checkpoint, target)


def load_gemma_assistant(
    path: str | Path, target: Target, *, buckets: Buckets, context: int | None = None
) -> GemmaAssistant:
    """The assistant of a folder, for the target that it was made for. See `GemmaAssistant`."""
    return GemmaAssistant(Checkpoint(path), target, buckets=buckets, context=context)


def check_gemma_assistant(
    path: str | Path, target: Checkpoint, *, context: int | None = None
) -> None:
    """Raises ValueError, one line, before any weight is read: no assistant, or another target's."""
    checkpoint, theirs = Checkpoint(path), text_config(target)
    sizes = {kind: (form.kv_heads, form.size) for kind, form in theirs.kv_forms.items()}
    try:
        AssistantConfig.read(checkpoint.config).check_fit(theirs.hidden, theirs.vocab, sizes)
    except ValueError as error:
        raise ValueError(f"checkpoint {checkpoint.path}: {error}") from error


def load_prompt_lookup(target: Target, *, buckets: Buckets, ngram: int = 3) -> PromptLookup:
    """Prompt look-up with a place for each of the target's slots."""
    return PromptLookup(
        slots=target.slots, context=target.limits.context, ngram=ngram, device=target.device
    )


def check_prompt_lookup(target: Checkpoint, *, ngram: int = 3) -> None:
    check_ngram(ngram)


def no_drafter(target: Target, *, buckets: Buckets) -> None:
    """`drafter=none`: plain decoding, whatever the policy wants."""
    return None


# by loader: what refuses its settings before anything is loaded, given the target's checkpoint
CHECKS: dict[Callable[..., Any], Callable[..., None]] = {
    load_qwen_mtp: check_qwen_mtp,
    load_gemma_assistant: check_gemma_assistant,
    load_prompt_lookup: check_prompt_lookup,
}
