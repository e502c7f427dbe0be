"""Texts that loop flatter every drafter: a tape is cut before its first repeated 16-gram."""

from __future__ import annotations

from mtp.metrics import first_repeat
from mtp.tape import Tape

GRAM = 16


def before_loop(tape: Tape, gram: int = GRAM) -> Tape:
    """The tape up to the last token of the first `gram` tokens that occurred before, left out;
    itself where none did."""
    end = first_repeat(tape.tokens, gram)
    return tape if end is None else cut(tape, end)


def cut(tape: Tape, length: int) -> Tape:
    """Its first `length` tokens. Matches past the end are not known."""
    matches = tuple(
        min(match, length - 1 - place) for place, match in enumerate(tape.matches[:length])
    )
    return Tape(tape.tokens[:length], matches, tape.confidence[:length], tape.truth[:length])
