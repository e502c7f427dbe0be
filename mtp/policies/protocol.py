"""What a policy is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from mtp.commit import Committed
from mtp.request import Request
from mtp.windows import SlotView, WindowPlan


@dataclass(frozen=True)
class Decision:
    """plan: the window; depth: drafts every slot of it makes after its commit (fixed before the window, part of its graph)."""

    plan: WindowPlan
    depth: int


@runtime_checkable
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


@dataclass(frozen=True)
class SlotResult:
    """What became of one slot in a window, or at the end of its prefill (rows 0).

    position: its anchor's, before; drafts, confidence: token ids of the drafts it holds now, and the drafter's own view of them.
    """

    request: str
    slot: int
    rows: int
    position: int
    committed: Committed
    drafts: tuple[int, ...]
    confidence: tuple[float, ...]


@dataclass(frozen=True)
class WindowResult:
    """One window, or the end of one prefill, as it went. rows: before padding; depth: drafted after it; seconds: of the step,
    planning included, booking and captures left out."""

    slots: tuple[SlotResult, ...]
    rows: int
    padded: int
    depth: int
    seconds: float


@runtime_checkable
class Learning(Policy, Protocol):
    """A policy with state. The configured object is its settings; an engine works on what `open` gives."""

    def open(self) -> Learning:
        """Settings with a fresh state."""
        ...

    def observe(self, result: WindowResult) -> None:
        """After every window and every prefill, before their tokens are booked: those that end here have not left yet."""
        ...

    def release(self, request: str) -> None:
        """The request has ended, wherever it was: what was kept about it alone goes."""
        ...

    def report(self) -> dict[str, Any]:
        """What it did and why, as plain JSON values: the `policy` of metrics.json."""
        ...
