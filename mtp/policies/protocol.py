"""What a policy is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mtp.request import Request
from mtp.windows import SlotView, WindowPlan


@dataclass(frozen=True)
class Decision:
    """plan: the window; depth: drafts every slot of it makes after its commit (fixed before the window, part of its graph)."""

    plan: WindowPlan
    depth: int


class Policy(Protocol):
    """sizes: the group sizes it gives; depth: drafts made after a prefill, before the policy has seen the slot."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def depth(self) -> int: ...

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        """slots: the active ones, ascending, with their caps; rows: of the window; start: slot id the rotation begins at."""
        ...


@runtime_checkable
class Declining(Protocol):
    """What a policy may also have: it is asked whenever a request is to get a grant."""

    def declines(self, request: Request) -> bool:
        """True: the request decodes plainly for good."""
        ...
