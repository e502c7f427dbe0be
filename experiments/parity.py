"""Whether a run's tokens are those of plain decoding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mtp.request import Finished


@dataclass(frozen=True)
class Plain:
    tokens: list[int]
    finish: str


@dataclass(frozen=True)
class Parity:
    """first_difference: {request, index, plain, run} of the first token that differs, None when all are equal."""

    checked: int
    exact: bool
    first_difference: dict[str, Any] | None


def compare(reference: dict[str, Plain], finished: list[Finished]) -> Parity:
    """Every request of the reference, tokens and finish. Cancelled and failed ones are held against its beginning."""
    ended = {done.id: done for done in finished}
    for name, plain in sorted(reference.items()):
        done = ended.get(name)
        got = list(done.tokens) if done else []
        cut = done is not None and done.finish in ("cancelled", "error")
        expected = plain.tokens[: len(got)] if cut else plain.tokens
        if got != expected:
            place = next((i for i, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]), min(len(expected), len(got)))
            at = {"plain": expected[place] if place < len(expected) else None, "run": got[place] if place < len(got) else None}
            return Parity(len(finished), False, {"request": name, "index": place, **at})
        if done is None or (not cut and done.finish != plain.finish):
            return Parity(len(finished), False, {"request": name, "index": len(got), "plain": plain.finish, "run": done and done.finish})
    return Parity(len(finished), True, None)
