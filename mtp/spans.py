"""Named ranges of a step, for a profiler. Pure Python: who listens comes from outside; while nobody does, a span is one shared object
that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

Span = AbstractContextManager[object]
Listener = Callable[[str], Span]

_silence: Span = nullcontext()
_listener: Listener | None = None


def span(name: str, number: int | None = None) -> Span:
    """A range while it is open. number: of the window."""
    if _listener is None:
        return _silence
    return _listener(name if number is None else f"{name} {number}")


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While it is open, the listener makes every span of this process."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before
