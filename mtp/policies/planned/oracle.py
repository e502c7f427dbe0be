"""Bounds on what any policy can reach: plans made with what only a tape knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mtp.policies.planned.depth import Scenarios
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.survival import cumulated
from mtp.policies.protocol import WindowResult
from mtp.tape import Tape
from mtp.windows import SlotView


@runtime_checkable
class Oracle(Protocol):
    """What a run's tapes know. index: of the output token that is the anchor, from 0; past the
    end any answer will do. probabilities: whether `survival` has an answer."""

    @property
    def probabilities(self) -> bool: ...

    def survival(self, request: str, index: int) -> tuple[float, ...]:
        """Per draft made at that token, the true probability that it and all before it are right
        (synthetic tapes)."""
        ...

    def matches(self, request: str, index: int) -> int:
        """How many leading drafts made at that token are right."""
        ...


@dataclass(frozen=True)
class TapeOracle:
    """tapes: by request id; probabilities: they hold the true ones."""

    tapes: Mapping[str, Tape]
    probabilities: bool = True

    def survival(self, request: str, index: int) -> tuple[float, ...]:
        truth = self.tapes[request].truth
        return cumulated(truth[min(index, len(truth) - 1)])

    def matches(self, request: str, index: int) -> int:
        matches = self.tapes[request].matches
        return matches[min(index, len(matches) - 1)]


class OracleEstimator(ABC):
    """Counts each request's output tokens, and asks the tapes."""

    missed = False

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.index: dict[str, int] = {}  # of the anchor, by request

    @abstractmethod
    def known(self, request: str, index: int) -> Sequence[float]:
        """Per draft of the chain made at that output token, the survival to go by."""

    def survival(self, view: SlotView) -> Sequence[float]:
        return self.known(view.request, self.index.get(view.request, 0))[: view.held]

    def ahead(self, request: str) -> Scenarios:
        """The mean over where the next anchor may be: one token on, and one more for every draft
        that is right."""
        index = self.index.get(request, 0)
        reach = (1.0, *self.known(request, index), 0.0)
        places = [self.known(request, index + 1 + k) for k in range(len(reach) - 1)]
        return [
            [
                sum((reach[k] - reach[k + 1]) * place[j] for k, place in enumerate(places))
                for j in range(len(places[0]))
            ]
        ]

    def observe(self, result: WindowResult) -> None:
        for part in result.slots:
            self.index[part.request] = self.index.get(part.request, -1) + len(part.committed.tokens)

    def release(self, request: str) -> None:
        self.index.pop(request, None)

    def report(self) -> dict[str, Any]:
        return {"requests_held": len(self.index)}


@dataclass(frozen=True)
class OraclePolicy(PlannedPolicy):
    """oracle: handed in by whoever holds the tapes; without it there is no such policy."""

    oracle: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.oracle, Oracle):
            given = "null" if self.oracle is None else type(self.oracle).__name__
            raise ValueError(
                f"policy.oracle is {given}, expected the tapes of a run: workload=synthetic or "
                "recorded"
            )
        super().__post_init__()
