"""What a run stands on: a model, or tapes. The job, the engine and every figure are the same on
both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console

from experiments.config.checks import BadInput
from experiments.runs.parity import Gap, Plain
from experiments.runs.spec import RunSpec
from mtp.engine import Engine
from mtp.executor import Executor
from mtp.layouts import Layout
from mtp.layouts.cache import GraphBackend
from mtp.policies import Policy
from mtp.request import Request


class Runtime(Protocol):
    """What a run's requests run on."""

    spec: RunSpec
    requests: list[Request]
    evidence: str  # as in metrics.json
    device: str  # in words
    tolerance: float  # logits: two correct ways to sum may choose differently within it

    def print_headline(self, console: Console) -> None:
        """What a person should know before the run."""
        ...

    def executor(self) -> Executor:
        """The run's own."""
        ...

    def plain_executor(self) -> Executor:
        """Of the fastest plain decoding: tight rows, no drafter."""
        ...

    def graphs(self, executor: Executor) -> GraphBackend: ...

    def reference(self) -> dict[str, Plain]:
        """What each request gives by plain decoding alone, by request id."""
        ...

    def gap(self, reference: dict[str, Plain]) -> Gap:
        """See `compare`."""
        ...

    def advice(self) -> str:
        """What would make tokens that differ exact, as the end of a line; empty: nothing known."""
        ...

    def warm(self, executor: Executor, policy: Policy | None = None) -> float:
        """Seconds spent so that first calls do not count."""
        ...

    def decode(self, tokens: Sequence[int]) -> str: ...


def engine_for(
    spec: RunSpec,
    executor: Executor,
    requests: Sequence[Request],
    policy: Policy | None = None,
    layout: Layout | None = None,
) -> Engine:
    """policy: another than the run's own, without grants: the fastest plain decoding has none.
    Raises BadInput for a request that cannot be served."""
    settings = spec.settings
    engine = Engine(
        executor,
        slots=settings.slots,
        rows=settings.rows,
        policy=policy or spec.policy,
        grants=spec.grants if policy is None else None,
        layout=layout,
        prefill_chunk=settings.prefill_chunk,
    )
    for request in requests:
        try:
            engine.submit(request)
        except ValueError as wrong:
            raise BadInput(str(wrong)) from wrong
    return engine
