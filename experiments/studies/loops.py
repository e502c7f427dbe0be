"""Texts that loop flatter every drafter: a tape is cut before its first repeated 16-gram."""

from __future__ import annotations

from mtp.tape import Tape

GRAM = 16


def before_loop(tape: Tape, gram: int = GRAM) -> Tape:
    """The tape up to the last token of the first `gram` tokens that occurred before, left out; itself where none did."""
    seen: set[tuple[int, ...]] = set()
    for end in range(gram, len(tape.tokens) + 1):
        piece = tape.tokens[end - gram : end]
        if piece in seen:
            return cut(tape, end - 1)
        seen.add(piece)
    return tape


def cut(tape: Tape, length: int) -> Tape:
    """Its first `length` tokens. Matches past the end are not known."""
    matches = tuple(
        min(match, length - 1 - place) for place, match in enumerate(tape.matches[:length])
    )
    return Tape(tape.tokens[:length], matches, tape.confidence[:length], tape.truth[:length])
