"""Standard output and error that end nothing: they may be closed by their reader (`| head -1`), lie
on a full disk, or know too few characters."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from mtp.errors import encodable


class Steady:
    """A stream whose writes never raise. Once one failed, what follows is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._lost = stream, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        if not self._lost:
            try:
                self._stream.write(encodable(text, self._stream))
            except Exception:
                self._drop()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if not self._lost:
            try:
                self._stream.flush()
            except Exception:
                self._drop()

    def _drop(self) -> None:
        """What the stream still holds goes nowhere when the process ends, and fails no more."""
        self._lost = True
        with contextlib.suppress(Exception):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


@contextlib.contextmanager
def steady_streams() -> Iterator[None]:
    """Within it, sys.stdout and sys.stderr are steady."""
    kept = sys.stdout, sys.stderr
    steady: list[Any] = [None if out is None else Steady(out) for out in kept]
    sys.stdout, sys.stderr = steady
    try:
        yield
    finally:
        for out in filter(None, steady):
            out.flush()
        sys.stdout, sys.stderr = kept
