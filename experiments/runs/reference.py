"""The plain reference: every request decoded alone, one row at a time, with the run's own row
buckets. Cached by fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments.io import PROJECT, fingerprint
from experiments.runs.parity import Plain
from experiments.runs.settings import Settings
from experiments.runs.setup import Setup
from mtp.checks import is_integer
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.files import code_digest, remembered
from mtp.machine import processor
from mtp.policies import StaticK
from mtp.request import Request
from triton_kernels.launch import cpu_path

CODE = (PROJECT / "mtp", PROJECT / "triton_kernels", Path(__file__))


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
        decode = partial(_decoded, executor, settings, request)
        tokens[request.id] = remembered(file, decode, _plain)
    return tokens


def _decoded(executor: ModelExecutor, settings: Settings, request: Request) -> dict[str, Any]:
    engine = Engine(
        executor,
        slots=1,
        rows=settings.rows,
        policy=StaticK(0),
        prefill_chunk=settings.prefill_chunk,
    )
    engine.submit(replace(request, arrival_s=0.0))
    (done,) = engine.run()
    if done.finish == "error":
        raise RuntimeError(f"the plain reference of request {request.id} failed: {done.error}")
    return {"tokens": list(done.tokens), "finish": done.finish}


def _plain(held: Any) -> Plain:
    plain = Plain(**held)
    if not isinstance(plain.tokens, list) or not all(map(is_integer, plain.tokens)):
        raise ValueError("its tokens are no list of integers")
    if plain.finish not in ("stop", "length"):
        raise ValueError(f"its finish is {plain.finish!r}")
    return plain


def weights_fingerprint(folder: Path) -> str:
    """Of the weight files' content and config.json."""
    digest = hashlib.sha256()
    for file in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        digest.update(file.name.encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


def _key(setup: Setup, request: Request, weights: str) -> str:
    """Everything the tokens can depend on. The prompt's ids are what its text, the tokenizer and
    the chat template made; the code is all that computes tokens from them."""
    settings, limits = setup.spec.settings, setup.target.limits
    options = {
        name: value
        for name, value in vars(request).items()
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
            "name": _name(setup.device),
            "code": code_digest(*CODE),
            "threads": torch.get_num_threads(),
            "kernels": cpu_path(),
            "torch": torch.__version__,
        }
    )


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {torch.backends.cpu.get_cpu_capability()}"
