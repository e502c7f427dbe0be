"""Refusals of bad input: one line that names the key, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtp.checks import is_integer, is_number


class BadInput(ValueError):
    """Something the user gave cannot be used. Its text is the whole message; the entry points
    exit with 2."""


def integer(key: str, value: Any, least: int, most: int | None = None) -> int:
    """An integer as written in digits; bools, floats and strings are refused."""
    if not is_integer(value) or value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"{least} to {most}"
        raise BadInput(f"{key} is {_shown(value)}, expected an integer, {allowed}")
    return value


def number(key: str, value: Any, least: float) -> float:
    if not is_number(value) or value < least:
        raise BadInput(f"{key} is {_shown(value)}, expected a finite number, at least {least:g}")
    return float(value)


def choice(key: str, value: Any, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise BadInput(f"{key} is {_shown(value)}, expected one of {', '.join(allowed)}")
    return value


def integers(key: str, value: Any, least: int) -> list[int]:
    """A list of integers, not empty."""
    if isinstance(value, (str, int, float)) or value is None or not list(value):
        raise BadInput(f"{key} is {_shown(value)}, expected a list like [1,2,4]")
    return [integer(f"{key}[{place}]", item, least) for place, item in enumerate(value)]


def _shown(value: Any) -> str:
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    )
