"""What a policy is: it decides every window; one with state also learns from each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from mtp.commit import Committed
from mtp.executor import Outcome
from mtp.request import Request, Stream
from mtp.windows import SlotView, WindowPlan


@dataclass(frozen=True)
class Decision:
    plan: WindowPlan
    # Drafts every slot of the window makes after its commit: fixed before it, part of its graph.
    depth: int


@runtime_checkable
class Deciding(Protocol):
    """A policy without state is this alone: its settings decide."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The group sizes it gives."""
        ...

    @property
    def depth(self) -> int:
        """The most drafts it asks for: as many are made after a prefill, before it has seen the
        slot."""
        ...

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        """slots: the active ones, ascending, with their caps; rows: of the window; start: slot
        id the rotation begins at."""
        ...


@dataclass(frozen=True)
class SlotResult:
    """What became of one slot in a window, or at the end of its prefill."""

    request: str
    slot: int
    rows: int  # 0: at the end of its prefill
    position: int  # of its anchor, before
    committed: Committed
    drafts: tuple[int, ...]  # token ids of the drafts it holds now
    confidence: tuple[float, ...]  # the drafter's own, per draft

    @classmethod
    def of(cls, stream: Stream, rows: int, outcome: Outcome) -> SlotResult:
        return cls(
            stream.request.id,
            stream.slot,
            rows,
            stream.position,
            outcome.committed,
            outcome.drafts,
            outcome.confidence,
        )


@dataclass(frozen=True)
class WindowResult:
    """One window, or the end of one prefill, as it went."""

    slots: tuple[SlotResult, ...]
    rows: int  # before padding
    padded: int  # rows of padding
    depth: int  # drafted after it
    seconds: float  # of the step: planning included, booking and captures left out


@runtime_checkable
class Declining(Protocol):
    """What a policy may also have: it is asked whenever a request is to get a grant."""

    def declines(self, request: Request) -> bool:
        """True: the request decodes plainly for good."""
        ...


def declines_of(policy: object) -> Callable[[Request], bool]:
    """Whether it declines a request: never, where it has no say in that."""
    return policy.declines if isinstance(policy, Declining) else lambda request: False


class LivePolicy(Deciding, Protocol):
    """A policy with state, of one engine."""

    def observe(self, result: WindowResult) -> None:
        """After every window and every prefill, before their tokens are booked: those that end
        here have not left yet."""
        ...

    def release(self, request: str) -> None:
        """The request has ended, wherever it was: what was kept about it alone goes."""
        ...

    def report(self) -> dict[str, Any]:
        """What it did and why, as plain JSON values: the `policy` of metrics.json."""
        ...


@runtime_checkable
class Learning(Protocol):
    """The settings of a policy with state."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def depth(self) -> int: ...

    def open(self) -> LivePolicy:
        """A policy with a fresh state, for one engine."""
        ...


Policy: TypeAlias = Deciding | Learning
