"""How a failure is reported."""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import TextIO


def print_error(message: str, fault: BaseException | None = None) -> None:
    """One ERR line on stdout and on stderr: servers often keep only one of them. The fault's
    traceback follows on stderr."""
    for out in (sys.stdout, sys.stderr):
        say(f"ERR {' '.join(message.split())}", out)
    if fault is not None:
        say("".join(traceback.format_exception(fault)).rstrip("\n"), sys.stderr)


def say(line: str, out: TextIO | None) -> None:
    """A line that may be lost, but ends nothing: the stream may be closed, full or broken."""
    with contextlib.suppress(Exception):
        if out is not None:
            print(encodable(line, out), file=out, flush=True)


def encodable(text: str, out: TextIO) -> str:
    """The text with escapes for what the stream's encoding does not know."""
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
