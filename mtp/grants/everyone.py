"""`grant=off`: every request may speculate, always."""

from __future__ import annotations

from collections.abc import Sequence

from mtp.request import Stream


class Everyone:
    def caps(self, streams: Sequence[Stream]) -> dict[int, int | None]:
        """The cap of every decoding slot."""
        return {stream.slot: None for stream in streams}
