"""What a drafter is."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from torch import Tensor

from mtp.targets.protocol import Target
from triton_kernels import Packed


class Drafted(NamedTuple):
    tokens: Tensor  # [slots, depth] int32
    confidence: Tensor  # [slots, depth] fp32, the drafter's own probability of each draft
    counts: Tensor  # [slots] int32: drafts that count, at most depth; only of slots that advanced


class Drafter(Protocol):
    """Proposes the tokens after a committed prefix; what it proposes depends on that prefix alone.

    Contract at a park: a request that is left out of any number of windows loses nothing that later
    drafts depend on. Its state moves only in `prefill`, `advance` (for slots with kept > 0) and
    `clear`.
    """

    context: int  # it never drafts from a position >= this
    max_depth: int  # most drafts of one advance

    def bind(self, target: Target) -> None:
        """All earlier state is gone. Raises ValueError for a target that it is not made for."""
        ...

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        """Entries start..start + n - 1 of the slot, from a chunk of its prompt.

        Entry i pairs the target's hidden row i with token i + 1.

        ids: [n + 1] int, the tokens from `start` on; hidden: [n, hidden] of the target.
        """
        ...

    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        """After a commit: feeds the kept rows, then chains `depth` drafts.

        The kept rows are fed with the target's hidden rows and picks. Entries made while chaining
        are provisional: the next advance overwrites them. Slots with kept = 0 are not changed.

        kept: [slots] int32
        picks: [bucket] int32, hidden: [bucket, hidden], of the window's rows

        Raises ValueError for a depth that the drafter does not have.
        """
        ...

    def clear(self, slot: int) -> None:
        """Nothing of the slot's past is left."""
        ...
