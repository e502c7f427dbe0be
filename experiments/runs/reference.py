"""The plain reference: every request decoded alone, one row at a time, with the run's own row
buckets. Cached by fingerprint."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

from experiments.io import fingerprint, write_json
from experiments.runs.parity import Plain
from experiments.runs.setup import Setup
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import StaticK
from mtp.request import Request


def plain_executor(setup: Setup, *, buckets: Any) -> ModelExecutor:
    settings = setup.spec.settings
    return ModelExecutor(
        setup.target,
        None,
        slots=settings.slots,
        rows=settings.rows,
        largest_group=1,
        depth=0,
        buckets=buckets,
        device=setup.device,
    )


def plain_tokens(setup: Setup, model_folder: Path, cache: Path) -> dict[str, Plain]:
    """What each request gives alone, by request id. Raises RuntimeError when plain decoding
    itself fails: nothing is kept then."""
    settings = setup.spec.settings
    weights = weights_fingerprint(model_folder)
    tokens: dict[str, Plain] = {}
    executor = plain_executor(setup, buckets=settings.buckets)
    for request in setup.requests:
        file = cache / "plain" / f"{_key(setup, request, weights)}.json"
        kept = _kept(file)
        if kept is None:
            engine = Engine(
                executor,
                slots=1,
                rows=settings.rows,
                policy=StaticK(0),
                prefill_chunk=settings.prefill_chunk,
            )
            engine.submit(_at_once(request))
            (done,) = engine.run()
            if done.finish == "error":
                raise RuntimeError(
                    f"the plain reference of request {request.id} failed: {done.error}"
                )
            file.parent.mkdir(parents=True, exist_ok=True)
            kept = Plain([*done.tokens], done.finish)
            write_json(file, {"tokens": done.tokens, "finish": done.finish})
        tokens[request.id] = kept
    return tokens


def _kept(file: Path) -> Plain | None:
    """What the cache holds; None where that is nothing, or nothing that can be used: it is computed
    again then."""
    if not file.exists():
        return None
    try:
        kept = json.loads(file.read_text())
        plain = Plain(**kept)
        if not all(isinstance(token, int) for token in plain.tokens):
            raise ValueError("its tokens are no integers")
        return plain
    except (OSError, ValueError, TypeError) as wrong:
        print(f"warning: {file} cannot be used ({wrong}), it is computed again", file=sys.stderr)
        return None


def weights_fingerprint(folder: Path) -> str:
    """Of the weight files' content and config.json."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        digest.update(file.name.encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _at_once(request: Request) -> Request:
    return Request(**{**request.__dict__, "arrival_s": 0.0})


def _key(setup: Setup, request: Request, weights: str) -> str:
    """Everything the tokens can depend on."""
    settings, limits = setup.spec.settings, setup.target.limits
    options = {
        name: value
        for name, value in request.__dict__.items()
        if name not in ("id", "priority", "arrival_s")
    }
    return fingerprint(
        {
            **options,
            "stop_ids": sorted(request.stop_ids | limits.stop_ids),
            "weights": weights,
            "context": limits.context,
            "prefill_chunk": settings.prefill_chunk,
            "buckets": settings.buckets.sizes,
            "dtype": str(setup.target.dtype),
            "device": str(setup.device),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
    )
