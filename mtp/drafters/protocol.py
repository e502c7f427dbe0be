"""What a drafter is."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from mtp.targets.protocol import Target
from triton_kernels import Packed


class Drafted(NamedTuple):
    tokens: Tensor  # [slots, depth] int32
    confidence: Tensor  # [slots, depth] fp32, the drafter's own probability of each draft
    counts: Tensor  # [slots] int32: how many of them count, at most depth; means nothing for slots that did not advance


class Drafter(Protocol):
    """Proposes the tokens after a committed prefix; what it proposes depends on that prefix alone.

    Contract at a park: a request that is left out of any number of windows loses nothing that later drafts depend on. Its
    state moves only in `prefill`, `advance` (for slots with kept > 0) and `clear`.
    """

    context: int  # it is never asked at a position >= this
    max_depth: int

    def bind(self, target: Target) -> None: ...

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        """Entries start..start+n-1 of the slot: entry i pairs the target's hidden row i (hidden [n, hidden]) with token i + 1.

        ids: the n + 1 tokens from `start` on."""
        ...

    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        """After a commit: kept rows are fed with the target's hidden rows and picks, then `depth` drafts are chained.

        kept [slots] int32; picks [bucket] int32, hidden [bucket, hidden]: of the window's rows. Entries made while chaining
        are provisional: the next advance overwrites them. Slots with kept = 0 are not changed."""
        ...

    def clear(self, slot: int) -> None: ...
