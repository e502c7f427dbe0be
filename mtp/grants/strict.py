"""`grant=strict`: the highest priority first, first come first served within it. The lowest may
wait for ever."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.grants.rotate import Rotate


@dataclass(frozen=True)
class Strict(Rotate):
    """`rotate` without its skip cap."""

    skip_cap: int = 0
