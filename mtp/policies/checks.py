"""Refusals shared by the policies: one line that names the key, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtp.checks import check_integer
from mtp.windows import MAX_DEPTH


def check_sizes(sizes: Sequence[int]) -> None:
    if not sizes or 1 not in sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
        raise ValueError(
            f"sizes is {list(sizes)}, expected ascending group sizes with 1 among them"
        )


def check_published_sizes(sizes: Sequence[int]) -> None:
    if sizes != (1, 2, 4):
        raise ValueError(
            f"sizes is {list(sizes)}, expected [1, 2, 4]: the published policy knows no others"
        )


def check_depth(depth: Any, least: int = 0) -> None:
    check_integer("policy.depth", depth, least, MAX_DEPTH)
