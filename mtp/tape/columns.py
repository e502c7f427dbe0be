"""What a tape's file and its synthesis give: the fields of a `Tape`."""

from __future__ import annotations

from typing import NamedTuple


class Columns(NamedTuple):
    """See `mtp.tape.Tape`, which checks them."""

    tokens: tuple[int, ...]
    matches: tuple[int, ...]
    confidence: tuple[tuple[float, ...], ...] = ()
    truth: tuple[tuple[float, ...], ...] = ()
