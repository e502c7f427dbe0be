"""A slot that may enter a window, and what its groups are worth. Pure Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NEVER = float("-inf")
CLOSE = 1e-12  # values nearer than this are equal


class Candidate(NamedTuple):
    """A slot that may run."""

    slot: int
    most: int  # rows it may have: its limit, held + 1
    survival: Sequence[float]  # [j]: that its first j + 1 drafts are accepted; not increasing
    seconds: float = 0.0  # what it costs by itself once it enters (its KV)
    skips: int = 0  # windows it was left out of in a row


def gains(candidate: Candidate, sizes: Sequence[int], rows: int) -> list[tuple[int, float]]:
    """(group size, expected tokens) of every group it may have."""
    most, survival = min(candidate.most, rows), candidate.survival
    found, total, counted = [], 1.0, 1
    for size in sizes:
        if size > most:
            break
        if size > counted:
            total += sum(survival[counted - 1 : size - 1])
            counted = size
        found.append((size, total))
    return found
