"""What configs may refer to: ${shipped:NAME}, ${prompts:NAME}, ${run_id:}."""

from __future__ import annotations

import uuid
from functools import cache

from omegaconf import OmegaConf

from experiments.results import PROJECT


@cache
def run_id() -> str:
    """8 hex digits, the same for the life of the process."""
    return uuid.uuid4().hex[:8]


def register() -> None:
    """Idempotent."""
    OmegaConf.register_new_resolver("shipped", lambda name: str(PROJECT / "experiments" / "models" / name), replace=True)
    OmegaConf.register_new_resolver("prompts", lambda name: str(PROJECT / "experiments" / "prompts" / f"{name}.jsonl"), replace=True)
    OmegaConf.register_new_resolver("run_id", run_id, replace=True)
