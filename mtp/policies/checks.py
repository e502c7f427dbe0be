"""Refusals shared by the policies: one line that names the key, its value and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any


def checked_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    if not sizes or 1 not in sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
        raise ValueError(
            f"sizes is {list(sizes)}, expected ascending group sizes with 1 among them"
        )
    return tuple(sizes)


def check_depth(depth: Any) -> None:
    if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= 7:
        raise ValueError(f"policy.depth is {depth}, expected an integer, 0 to 7")


def check_count(name: str, value: Any, least: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"policy.{name} is {value}, expected an integer, at least {least}")


def check_number(name: str, value: Any, least: float, most: float = math.inf) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or not least <= value <= most
    ):
        allowed = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
        raise ValueError(f"policy.{name} is {value}, expected a number, {allowed}")
