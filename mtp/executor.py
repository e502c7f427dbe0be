"""The executor seam: what the engine asks of whatever carries out its plans."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mtp.commit import Committed
from mtp.request import Request
from mtp.windows import Group

MAX_DEPTH = 7  # drafts of a chain


@dataclass(frozen=True)
class Limits:
    """vocab: real token ids; context: most prompt + output tokens of a slot; stop_ids: the model's own."""

    vocab: int
    context: int
    stop_ids: frozenset[int]


def stops_of(request: Request, limits: Limits) -> frozenset[int]:
    """The ids that end a request: the model's and its own, or none."""
    return frozenset() if request.ignore_stop else limits.stop_ids | request.stop_ids


@dataclass(frozen=True)
class Outcome:
    """What one slot's group led to. held: drafts the executor now holds for it; drafts: their token ids; confidence: the drafter's
    own, per draft.

    plain_reason: the drafter failed and was lost to this slot, which holds no drafts from now on; told once, in the first outcome
    after it happened."""

    slot: int
    committed: Committed
    held: int = 0
    drafts: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    error: str | None = None
    speculation_disabled: str | None = None


class StagedWindow(Protocol):
    """One window, staged. Its phases read and write device tables only, so that a graph of them serves every such window.

    groups: of the window, in ascending slot order; where the device plans, they are known with the outcomes. graph_constants: what a
    captured graph of it holds beside its layout (bucket, depth, dtype, options); graph_epoch: another one than the window's before means
    that a buffer which graphs hold the address of was made anew; padded: rows of padding."""

    @property
    def groups(self) -> Sequence[Group]: ...

    @property
    def graph_constants(self) -> Hashable: ...

    @property
    def graph_epoch(self) -> int: ...

    @property
    def padded(self) -> int: ...

    def verify(self) -> None:
        """Pack, target forward, picks, accept. Changes no committed state: it may run any number of times."""
        ...

    def commit(self) -> None:
        """Keep rows and draft: everything of a slot moves here, together."""
        ...

    def outcomes(self) -> Sequence[Outcome]:
        """One per group, in its order: read after the commit, once."""
        ...


class Executor(Protocol):
    """Two implementations: the model (tensors) and the tape (pure). The engine is the same code on both."""

    limits: Limits
    max_depth: int

    def check(self, request: Request) -> None:
        """Raises ValueError when this executor cannot serve the request (an option it lacks, more than it has room for)."""
        ...

    def admit(self, slot: int, request: Request) -> None:
        """The slot is this request's from now on; nothing of an earlier one is left."""
        ...

    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        """Prompt tokens start..stop-1. The last chunk ends as one commit (and drafts): its outcome; else None."""
        ...

    def window(self, groups: Sequence[Group], depth: int) -> StagedWindow:
        """Stage a window. An exception here or in its work means that these slots' state is lost."""
        ...

    def release(self, slot: int) -> None:
        """The slot is free."""
        ...

    def now(self) -> float:
        """Seconds, once the work given so far is done; a wall clock or a virtual one."""
        ...

    def wait_until(self, time_s: float) -> None: ...


@runtime_checkable
class DevicePlanningExecutor(Executor, Protocol):
    """An executor whose device plans the windows itself, from what it holds. Results are read up to one window late, so that no
    host read stands between two windows; a slot is free again only after the read that shows its end."""

    policy: object  # the one that it carries out
    rows: int  # of a window

    def advance(
        self, caps: Mapping[int, int | None], depth: int, *, speculative: bool
    ) -> StagedWindow:
        """Stage the next window. caps, by slot: 0 = not in it, 1 = its anchor only, None = as many rows as the policy likes;
        speculative: whose turn it is: each side's rotation goes on where it was."""
        ...
