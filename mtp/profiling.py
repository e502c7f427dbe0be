"""Named ranges of a step, for a profiler. Methods are marked where they are defined and stay
what they are until somebody listens: ranges that nobody wants cost nothing. Pure Python."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce, wraps
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])
Name = str | Callable[[Any], str]  # of the range; or what gives it for an object

_marked: list[tuple[Callable[..., Any], Name]] = []


def profiled(name: Name) -> Callable[[Method], Method]:
    """Calls of the method, of a class of a module, are a range."""

    def mark(method: Method) -> Method:
        _marked.append((method, name))
        return method

    return mark


@contextmanager
def profiling_ranges(opened: Callable[[str], AbstractContextManager[Any]]) -> Iterator[None]:
    """While it is open, every call of a marked method, in this process, runs inside `opened(its
    range's name)`."""
    quiet = [(*_place(method), name) for method, name in _marked]
    originals = [vars(owner)[attribute] for owner, attribute, _ in quiet]
    for (owner, attribute, name), original in zip(quiet, originals, strict=True):
        setattr(owner, attribute, _inside(original, name, opened))
    try:
        yield
    finally:
        for (owner, attribute, _), original in zip(quiet, originals, strict=True):
            setattr(owner, attribute, original)


def _place(method: Callable[..., Any]) -> tuple[type, str]:
    """The class that holds the method, and under which name."""
    *path, attribute = method.__qualname__.split(".")
    return reduce(getattr, path, sys.modules[method.__module__]), attribute  # type: ignore[return-value]


def _inside(
    method: Callable[..., Any], name: Name, opened: Callable[[str], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with opened(name if isinstance(name, str) else name(self)):
            return method(self, *args, **kwargs)

    return call
