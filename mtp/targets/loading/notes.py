"""What a person should know of a checkpoint that is served: one line on stderr, once a process."""

from __future__ import annotations

import sys
from functools import cache


@cache
def note(line: str) -> None:
    print(f"note: {line}", file=sys.stderr, flush=True)
