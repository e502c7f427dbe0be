"""A plan becomes a target, a drafter and requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from hydra.utils import to_absolute_path
from omegaconf import DictConfig
from tokenizers import Tokenizer

from experiments.config.build import absolute, build, folder
from experiments.config.checks import BadInput
from experiments.runs.dates import today
from experiments.runs.loading import Loading
from experiments.runs.spec import RunSpec
from experiments.workloads.chat import chat_of
from experiments.workloads.prompt_file import PromptFile
from experiments.workloads.tokenizer import load_tokenizer
from mtp.drafters.protocol import Drafter
from mtp.policies import Record
from mtp.request import Request
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.protocol import Target

SMALL = 32_000_000  # parameters
DEFAULT_THREADS = torch.get_num_threads()  # before any job changes it


@dataclass(frozen=True)
class Setup:
    spec: RunSpec
    device: torch.device
    target: Target
    drafter: Drafter | None
    load_drafter: Callable[[], Any]
    tokenizer: Tokenizer | None
    requests: list[Request]


def setup(spec: RunSpec, config: DictConfig) -> Setup:
    """Loads target, drafter and prompts. Raises BadInput as above."""
    settings = spec.settings
    assert isinstance(spec.workload, PromptFile)
    assert spec.device is not None
    rows = max((2, settings.rows, *settings.buckets.sizes))  # 2: see `fewest_rows`
    path = folder("target.path", config.target)
    torch.set_num_threads(config.device.threads or threads_for(Checkpoint(path)))
    options = {"slots": settings.slots, "device": spec.device, "rows": rows}
    cache = to_absolute_path(str(config.cache_dir))
    target = build(absolute(config.target), "target", **options, progress=Loading(), cache=cache)

    def load_drafter() -> Drafter | None:
        return build(absolute(config.drafter), "drafter", target=target, buckets=settings.buckets)

    drafter = load_drafter() if spec.policy.depth > 0 else None
    if drafter is None and isinstance(spec.policy, Record):
        raise BadInput("drafter is none, expected one whose drafts policy=record can record")
    tokenizer_file = Path(path) / "tokenizer.json"
    tokenizer = load_tokenizer(tokenizer_file) if tokenizer_file.exists() else None

    day = date.fromisoformat(spec.workload.date or today())
    chat = chat_of(tokenizer_file.parent, spec.workload.chat, day)

    def encode(text: str) -> list[int]:
        if tokenizer is None:
            raise ValueError(
                f"prompt is text, but {tokenizer_file} does not exist: give prompt_ids"
            )
        if chat is not None:  # a template writes the special tokens itself
            return tokenizer.encode(chat(text), add_special_tokens=False).ids
        return tokenizer.encode(text).ids

    requests = spec.workload.load(
        encode, max_new_tokens=settings.max_new_tokens, seed=settings.seed
    )
    return Setup(spec, spec.device, target, drafter, load_drafter, tokenizer, requests)


def threads_for(checkpoint: Checkpoint) -> int:
    """torch's own choice, but one for a model whose products are too small to be shared: there
    threads mostly wait."""
    parameters = sum(count * out * width for (out, width), count in checkpoint.matrices().items())
    return 1 if parameters < SMALL else DEFAULT_THREADS
