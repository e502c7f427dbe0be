"""What configs may refer to: ${shipped:NAME}, ${weights:NAME}, ${prompts:NAME}, ${run_id:},
${folder_name:TEXT,OTHERWISE}."""

from __future__ import annotations

import re
import uuid
from functools import cache

from omegaconf import OmegaConf

from experiments.assets import MODELS, PROMPTS
from experiments.weights.place import folder_of


@cache
def run_id() -> str:
    """8 hex digits, the same for the life of the process."""
    return uuid.uuid4().hex[:8]


def folder_name(text: str | None, otherwise: str) -> str:
    """Text as one safe and short part of a path; None: the other one."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:60] or otherwise if text else otherwise


def register() -> None:
    """Idempotent."""
    OmegaConf.register_new_resolver("shipped", lambda name: str(MODELS / name), replace=True)
    OmegaConf.register_new_resolver("weights", lambda name: str(folder_of(name)), replace=True)
    OmegaConf.register_new_resolver(
        "prompts", lambda name: str(PROMPTS / f"{name}.jsonl"), replace=True
    )
    OmegaConf.register_new_resolver("run_id", run_id, replace=True)
    OmegaConf.register_new_resolver("folder_name", folder_name, replace=True)
