"""Drafters: what proposes tokens."""

from __future__ import annotations

from pathlib import Path

from mtp.drafters.qwen_mtp import QwenMtp
from mtp.execution.buckets import Buckets
from mtp.targets.checkpoint import Checkpoint
from mtp.targets.protocol import Target


def load_qwen_mtp(path: str | Path, target: Target, *, buckets: Buckets, context: int | None = None) -> QwenMtp:
    """The MTP head of a Qwen checkpoint folder, bound to the target loaded from it. See `QwenMtp`."""
    return QwenMtp(Checkpoint(path), target, buckets=buckets, context=context)
