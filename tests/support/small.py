"""Requests, engines and plain decoding for models of 12 tokens, of which even a random drafter
is right now and then."""

from __future__ import annotations

from typing import Any

import torch

from mtp.buckets import Buckets
from mtp.drafters.protocol import Drafter
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import CpuGraphs
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import Policy, StaticK
from mtp.request import Finished, Request
from mtp.targets.decoder import DecoderTarget

CPU, CONTEXT, SLOTS, VOCAB = torch.device("cpu"), 300, 4, 12
BUCKETS = Buckets((8,))  # bit-equal in fp32 too


def requests(new: int, **options: Any) -> list[Request]:
    generator = torch.Generator().manual_seed(5)
    prompts = [
        tuple(torch.randint(0, VOCAB, (length,), generator=generator).tolist())
        for length in (1, 7, 33, 70, 2)
    ]
    return [
        Request(f"r{n}", prompt, new, **({"ignore_stop": True} | options))
        for n, prompt in enumerate(prompts)
    ]


def engine(
    target: DecoderTarget,
    drafter: Drafter | None,
    policy: Policy,
    *,
    key: str | None = None,
    slots: int = SLOTS,
    **options: Any,
) -> Engine:
    """key: layouts are recorded by it; None: none are."""
    executor = ModelExecutor(
        target,
        drafter,
        slots=SLOTS,
        largest_group=4,
        depth=policy.depth,
        buckets=BUCKETS,
        device=CPU,
    )
    layout = Keyed(key, LayoutCache(4, CpuGraphs(executor.dry_run))) if key else None
    return Engine(executor, slots=slots, policy=policy, layout=layout, prefill_chunk=32, **options)


def decode(engine_: Engine, todo: list[Request]) -> dict[str, Finished]:
    for request in todo:
        engine_.submit(request)
    return {done.id: done for done in engine_.run()}


def tokens(engine_: Engine, todo: list[Request]) -> dict[str, tuple[int, ...]]:
    return {name: done.tokens for name, done in decode(engine_, todo).items()}


def alone(target: DecoderTarget, todo: list[Request]) -> dict[str, tuple[int, ...]]:
    """Plain decoding, one request at a time."""
    return {
        request.id: decode(engine(target, None, StaticK(0), slots=1), [request])[request.id].tokens
        for request in todo
    }
