"""A small offline trial: policies on the same synthetic tapes, in planned seconds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mtp.costs import Cost
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.policies import Policy
from mtp.request import Request
from mtp.tape import Tape


@cache
def texts(regime: str, count: int, length: int, seed: int, auc: float = 0.75) -> Mapping[str, Tape]:
    """`mixed` here: every other request is code, the rest prose, so that both kinds always share
    windows."""
    kinds = ("code", "prose") if regime == "mixed" else (regime,)
    return {
        f"{regime}-{n}": Tape.synthetic(
            kinds[n % len(kinds)], length=length, seed=1000 * seed + n, auc=auc
        )
        for n in range(count)
    }


def tokens_per_s(
    policy: Policy, tapes: Mapping[str, Tape], cost: Cost, *, slots: int = 2, rows: int = 8
) -> float:
    """Tokens of windows per planned second, all requests there from the start."""
    engine = engine_on(policy, tapes, cost, slots=slots, rows=rows)
    engine.run()
    seconds = sum(step.end_s - step.start_s for step in engine.steps if step.kind == "window")
    return sum(entry.committed for entry in engine.rounds) / seconds


def engine_on(
    policy: Policy, tapes: Mapping[str, Tape], cost: Cost, *, slots: int = 2, rows: int = 8
) -> Engine:
    longest = max(len(tape.tokens) for tape in tapes.values())
    vocab = 1 + max(max(tape.tokens) for tape in tapes.values())
    limits = Limits(vocab=vocab + 1, context=longest + 16, stop_ids=frozenset())
    engine = Engine(
        TapeExecutor(tapes, limits=limits, cost=cost), slots=slots, rows=rows, policy=policy
    )
    for name, tape in tapes.items():
        engine.submit(Request(name, (1, 2, 3), len(tape.tokens)))
    return engine
