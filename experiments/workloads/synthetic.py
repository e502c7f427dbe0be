"""`workload=synthetic`: texts drawn after published acceptance figures; see
`mtp.tape.synthesis`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from experiments.config.checks import BadInput, choice, integer, integers
from experiments.workloads.arrivals import KINDS, with_arrivals
from experiments.workloads.lengths import draw_lengths
from experiments.workloads.tape_set import TapeSet
from mtp.executor import Limits
from mtp.request import Request
from mtp.tape import Tape
from mtp.tape.synthesis import Synthesis

KEPT = 1100  # tapes: above the most slots, so that a tape is drawn once while it is in use


@dataclass(frozen=True)
class SyntheticWorkload:
    """Synthetic tapes. Keys without a comment: see `Synthesis`."""

    regime: str
    requests: int = 8  # 1 to 10,000
    prompt_tokens: Any = 64  # see `draw_lengths`
    output_tokens: Any = None  # the same; None: max_new_tokens
    context: int = 4096  # most prompt + output tokens
    arrivals: str = "at_once"  # this and the next three: as in `PromptFile`
    rate: float | None = None
    trace: str | None = None
    priorities: list[int] | None = None
    depth: int = 7
    correlation: float = 0.8
    spread: float = 1.5
    auc: float = 0.7
    slope: float = 1.0
    offset: float = 0.0
    on_tapes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        integer("workload.requests", self.requests, 1, 10_000)
        integer("workload.context", self.context, 2, 2**31 - 1)
        choice("workload.arrivals", self.arrivals, [kind for kind in KINDS if kind != "file"])
        if self.priorities is not None:
            integers("workload.priorities", self.priorities, 0)

    def tapes(self, *, max_new_tokens: int, seed: int) -> TapeSet:
        """The requests now, their tapes when they are asked for."""
        settings = {
            name: getattr(self, name)
            for name in ("regime", "depth", "correlation", "spread", "auc", "slope", "offset")
        }
        try:
            synthesis = Synthesis(**settings)
        except ValueError as wrong:
            raise BadInput(f"workload.{wrong}") from wrong
        most, output = (
            self.context - 1,
            max_new_tokens if self.output_tokens is None else self.output_tokens,
        )
        prompts = draw_lengths(
            "workload.prompt_tokens", self.prompt_tokens, self.requests, most=most, seed=2 * seed
        )
        outputs = draw_lengths(
            "workload.output_tokens", output, self.requests, most=most, seed=2 * seed + 1
        )
        requests = [
            Request(
                f"{self.regime}-{n}",
                (0,) * prompt,
                min(out, self.context - prompt),
                ignore_stop=True,
                seed=seed,
            )
            for n, (prompt, out) in enumerate(zip(prompts, outputs, strict=True))
        ]
        requests = with_arrivals(
            requests,
            kind=self.arrivals,
            rate=self.rate,
            trace=self.trace,
            priorities=self.priorities,
            seed=seed,
        )
        limits = Limits(synthesis.vocab, self.context, frozenset())
        return TapeSet(
            requests, LazyTapes(synthesis, requests, seed), limits, synthesis.depth, "synthetic"
        )


class LazyTapes(Mapping[str, Tape]):
    """The tapes by request id, drawn when they are asked for: the same ones every time, and only
    some of them are kept."""

    def __init__(self, synthesis: Synthesis, requests: list[Request], seed: int) -> None:
        self._of = {
            request.id: (place, request.max_new_tokens) for place, request in enumerate(requests)
        }
        self._draw = lru_cache(KEPT)(
            lambda place, length: Tape.drawn(synthesis, length, (seed, place))
        )

    def __getitem__(self, name: str) -> Tape:
        return self._draw(*self._of[name])

    def __contains__(self, name: object) -> bool:
        return name in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)
