"""Checks of settings: a refusal is one line that names the key, its value and what is allowed."""

from __future__ import annotations

import math
from typing import Any


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    """name: the full key, as in a config. Raises ValueError."""
    if not is_integer(value) or value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise ValueError(f"{name} is {value!r}, expected an integer, {allowed}")


def check_number(
    name: str,
    value: Any,
    least: float,
    most: float = math.inf,
    *,
    what: str = "a number",  # of what, in the message; empty: the range says enough
) -> None:
    """A finite number in the range, borders included. Raises ValueError."""
    if not is_number(value) or not least <= value <= most:
        allowed = f"at least {least:g}" if most == math.inf else f"{least:g} to {most:g}"
        raise ValueError(f"{name} is {value!r}, expected {what + ', ' if what else ''}{allowed}")


def is_integer(value: Any) -> bool:
    """A bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A finite int or float; a bool is none."""
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
