"""What a drafter is."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from mtp.targets.protocol import Target
from triton_kernels import Packed


class Drafter(Protocol):
    """Proposes the tokens after a committed prefix; what it proposes depends on that prefix alone.

    Contract at a park: a request that is left out of any number of windows loses nothing that later drafts depend on. Its
    state moves only in `prefill`, `advance` (for slots with kept > 0) and `clear`.
    """

    context: int  # it is never asked at a position >= this
    max_depth: int

    def bind(self, target: Target) -> None: ...

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        """Entries start..start+n-1 of the slot: entry i pairs the target's hidden row i with token i + 1 (ids[i - start])."""
        ...

    def advance(self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """After a commit: kept rows are fed with the target's hidden rows and picks, then `depth` drafts are chained.

        kept [slots] int32; picks [bucket] int32, hidden [bucket, hidden]: of the window's rows. Gives drafts [slots, depth]
        int32 and confidence [slots, depth] fp32 (the drafter's probability of each draft); rows of slots with kept = 0 mean
        nothing. Entries made while chaining are provisional: the next advance overwrites them."""
        ...

    def clear(self, slot: int) -> None: ...
