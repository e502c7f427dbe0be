"""How loading a model gets on: lines on stderr, where it takes more than 2 s."""

from __future__ import annotations

import sys
from time import perf_counter

PATIENCE_S = 2.0  # before the first line, and between two


class Loading:
    """See `mtp.targets.loading.weights.Progress`."""

    def __init__(self) -> None:
        self._began = self._next = perf_counter()
        self._next += PATIENCE_S

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        if now >= self._next:
            self._next = now + PATIENCE_S
            print(
                f"loading weights: {done / 1e9:.2f} of {total / 1e9:.2f} GB, "
                f"{now - self._began:.0f} s",
                file=sys.stderr,
                flush=True,
            )
