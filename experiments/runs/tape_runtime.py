"""A run on tapes: no model, a virtual clock, a cost model gives what a step costs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console

from experiments.runs.parity import Gap, Plain
from experiments.runs.spec import RunSpec
from experiments.workloads.tape_set import TapeWorkload
from mtp.buckets import Buckets
from mtp.execution.tape import TapeExecutor
from mtp.executor import Executor
from mtp.graphs.tape import TapeGraphs
from mtp.layouts.cache import GraphBackend
from mtp.policies import Policy
from mtp.tape import text_of


class TapeRuntime:
    """See `Runtime`."""

    tolerance = 0.0

    def __init__(self, spec: RunSpec, workload: TapeWorkload) -> None:
        self.spec = spec
        self._set = workload.tapes(
            max_new_tokens=spec.settings.max_new_tokens, seed=spec.settings.seed
        )
        self.requests = self._set.requests
        self.evidence = self._set.evidence
        self.device = "virtual clock"

    def print_headline(self, console: Console) -> None:
        settings, kind = (
            self.spec.settings,
            "recorded" if self.evidence == "tape" else self.evidence,
        )
        console.print(
            f"{len(self.requests)} requests on {kind} tapes, {settings.slots} slots, "
            f"{settings.rows} rows, "
            f"buckets {settings.buckets.describe()}, virtual time"
        )

    def executor(self) -> TapeExecutor:
        return self._executor(self.spec.settings.buckets)

    def plain_executor(self) -> TapeExecutor:
        return self._executor(Buckets(()))

    def _executor(self, buckets: Buckets) -> TapeExecutor:
        made = self._set
        return TapeExecutor(
            made.tapes,
            limits=made.limits,
            cost=self.spec.cost,
            buckets=buckets,
            max_depth=made.depth,
        )

    def graphs(self, executor: Executor) -> GraphBackend:
        assert isinstance(executor, TapeExecutor)
        return TapeGraphs(executor.spend, capture_s=self.spec.cost.capture_s)

    def reference(self) -> dict[str, Plain]:
        """The tapes' own text."""
        made = self._set
        texts = {
            request.id: text_of(made.tapes[request.id], request, made.limits)
            for request in made.requests
        }
        return {name: Plain(list(tokens), finish) for name, (tokens, finish) in texts.items()}

    def gap(self, reference: dict[str, Plain]) -> Gap:
        """A tape's text has no alternatives."""
        return lambda difference: math.inf

    def advice(self) -> str:
        return ""

    def warm(self, executor: Executor, policy: Policy | None = None) -> float:
        """Nothing is warmer the second time."""
        return 0.0

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))
