"""What a person should know of a checkpoint that is served: one line on stderr, once a process."""

from __future__ import annotations

import sys
from functools import cache

from mtp.errors import say


@cache
def note(line: str) -> None:
    say(f"note: {line}", sys.stderr)
