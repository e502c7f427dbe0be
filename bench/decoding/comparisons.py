"""What the engine benchmark compares: our policies with our plain decoding, and that with
transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.decoding.alternating import MedianRatio, Pairs, Timed, Tokens, alternate, product
from bench.decoding.runs import (
    DIFFER,
    Generate,
    LoadedModel,
    Text,
    decoding,
    engine_decoding,
    verdict,
)
from bench.decoding.transformers_peer import transformers_decoding
from bench.rows import Row, row_of
from mtp.costs import Cost
from mtp.policies import Adaptive, Policy, RotateGrow, StaticK

STATIC = (1, 2, 3, 7)
PLAIN = StaticK(0, (1,))


@dataclass(frozen=True)
class Comparison:
    """Two ways to the same tokens, timed in turns."""

    shape: dict[str, Any]  # target, workload, requests, rows
    first: str
    second: str
    pairs: Pairs
    said: str  # of the tokens, see `verdict`

    @property
    def ratio(self) -> MedianRatio | None:
        """How many times as fast the second is; None where the tokens differ."""
        return None if self.said.startswith(DIFFER) else product(self.pairs.ratios)

    @property
    def ms(self) -> tuple[float, float]:
        """Milliseconds per token, medians."""
        return 1e3 * median(self.pairs.first_s), 1e3 * median(self.pairs.second_s)

    def row(self) -> Row:
        """Of the second way, with its ratio to the first."""
        return (
            decode_row(self.second, self.shape, self.pairs.second_s)
            | {"to": self.first, "tokens": self.said}
            | stats(self.ratio)
        )

    def cells(self) -> str:
        return f"{self.ms[0]:.2f} | {self.ms[1]:.2f} | {self.ratio or 'not shown'} | {self.said}"


def decode_row(implementation: str, shape: dict[str, Any], seconds: Sequence[float]) -> Row:
    """Time per token of decoding, whole runs by the wall clock."""
    return row_of(
        {
            "operation": "decode",
            "implementation": implementation,
            "shape": shape,
            "mode": "wall",
            "bytes": None,
            "per": 1,
        },
        seconds,
    )


def stats(ratio: MedianRatio | None) -> Row:
    return (
        {"ratio": None}
        if ratio is None
        else {
            "ratio": round(ratio.middle, 4),
            "interval": [round(ratio.low, 4), round(ratio.high, 4)],
        }
    )


def policies(requests: int, rows: int, max_depth: int, cost: Cost) -> dict[str, Policy]:
    """Every static k that at least one request finds the rows for, and those that share out
    rows."""
    depth = min(3, max_depth)
    fixed: dict[str, Policy] = {
        f"static_k_{k}": StaticK(k, (1, k + 1))
        for k in STATIC
        if k <= max_depth and rows - requests >= k
    }
    sharing: dict[str, Policy] = {
        "rotate_grow": RotateGrow(depth=depth),
        "adaptive": Adaptive(depth=depth, cost=cost),
    }
    return fixed | sharing


def speculation(
    model: LoadedModel,
    kind: str,
    texts: Sequence[Text],
    rows: int,
    cost: Cost,
    *,
    new: int,
    pairs: int,
) -> Iterator[Comparison]:
    """Every policy against the fastest plain decoding."""
    made = model.made
    assert made.drafter is not None
    shape = {
        "target": model.name,
        "dtype": model.dtype,
        "workload": kind,
        "requests": len(texts),
        "rows": rows,
    }
    plain = decoding(engine_decoding(made, None, PLAIN, texts, rows), len(texts), new)
    for name, policy in policies(len(texts), rows, made.drafter.max_depth, cost).items():
        ours = engine_decoding(made, made.drafter, policy, texts, rows)
        found, said = _alternated(model, texts, plain, decoding(ours, len(texts), new), pairs)
        yield Comparison(shape, "plain", name, found, said)


def against(
    model: LoadedModel,
    kind: str,
    texts: Sequence[Text],
    their: Any,
    *,
    new: int,
    pairs: int,
    assisted: dict[str, Any] | None,
) -> Comparison:
    """Our plain decoding against transformers' `generate` or, with `assisted`, its assisted
    generation against its plain one."""
    made = model.made
    shape = {
        "target": model.name,
        "dtype": model.dtype,
        "workload": kind,
        "requests": len(texts),
        "rows": len(texts),
    }
    other: Generate = (
        transformers_decoding(their, texts, **assisted)
        if assisted
        else engine_decoding(made, None, PLAIN, texts, len(texts))
    )
    plain = decoding(transformers_decoding(their, texts), len(texts), new)
    found, said = _alternated(model, texts, plain, decoding(other, len(texts), new), pairs)
    name = "transformers_assisted" if assisted else "plain"
    return Comparison(shape, "transformers", name, found, said)


def _alternated(
    model: LoadedModel, texts: Sequence[Text], first: Timed, second: Timed, pairs: int
) -> tuple[Pairs, str]:
    """Both timed in turns, and what is to be said of their tokens. Where these differ nothing can
    be shown of their times: one pair is enough."""

    def comparable(one: Tokens, other: Tokens) -> bool:
        return not verdict(model.made, texts, one, other).startswith(DIFFER)

    found = alternate(first, second, pairs, comparable)
    return found, verdict(model.made, texts, found.first, found.second)
