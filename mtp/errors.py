"""How a failure is reported."""

from __future__ import annotations

import sys


def print_error(message: str) -> None:
    """One ERR line on stdout and on stderr: servers often keep only one of them."""
    line = " ".join(message.split())
    for out in (sys.stdout, sys.stderr):
        print(f"ERR {line}", file=out, flush=True)
