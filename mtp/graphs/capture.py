"""What all capture backends share: whether a capture is under way, and how one fails."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

Work = Callable[[], None]
DryRun = Callable[[], contextlib.AbstractContextManager[None]]


class CaptureError(RuntimeError):
    """The work did what a captured graph cannot do."""


_depth = 0  # captures and their warm-ups under way


@contextlib.contextmanager
def under_way():
    global _depth
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1


def capturing() -> bool:
    """Whether a capture or its warm-up is under way: failures then belong to the capture."""
    return _depth > 0
