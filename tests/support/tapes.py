"""Random tapes and engines on them, shared by the tests of engine, grants and policies."""

from __future__ import annotations

import random
from collections.abc import Mapping

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.policies import Policy
from mtp.request import Request
from mtp.tape import Tape

STOP = 7
LIMITS = Limits(vocab=100, context=64, stop_ids=frozenset({STOP}))


def random_tape(seed: int, length: int = 80, stops: bool = True) -> Tape:
    draw = random.Random(seed)
    ids = [token for token in range(LIMITS.vocab) if token != STOP]
    tokens = [STOP if stops and draw.random() < 0.02 else draw.choice(ids) for _ in range(length)]
    return Tape(tuple(tokens), tuple(draw.choice([0, 0, 1, 2, 3, 7]) for _ in tokens))


def expected(request: Request, tape: Tape, limits: Limits = LIMITS) -> tuple[list[int], str]:
    """Plain decoding of a tape, written from the rules: stop ids, then limits, token by token."""
    stops = set() if request.ignore_stop else limits.stop_ids | request.stop_ids
    out: list[int] = []
    for token in tape.tokens:
        out.append(token)
        if token in stops and len(out) > request.min_new_tokens:
            return out, "stop"
        if len(out) == request.max_new_tokens or len(request.prompt) + len(out) == limits.context:
            return out, "length"
    raise AssertionError("the tape is too short")


def engine_of(
    requests: Mapping[Request, Tape], policy: Policy, *, limits: Limits = LIMITS, **options
) -> Engine:
    executor = TapeExecutor({request.id: tape for request, tape in requests.items()}, limits=limits)
    engine = Engine(executor, policy=policy, **options)
    for request in requests:
        engine.submit(request)
    return engine
