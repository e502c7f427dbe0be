"""The executor seam: what the engine asks of whatever carries out its plans."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from mtp.commit import Committed
from mtp.request import Request
from mtp.windows import MAX_DEPTH as MAX_DEPTH
from mtp.windows import Group

Path = Literal["eager", "replayed", "capturing"]


@dataclass(frozen=True)
class Limits:
    vocab: int  # real token ids
    context: int  # most prompt + output tokens of a slot
    stop_ids: frozenset[int]  # the model's own


def stops_of(request: Request, limits: Limits) -> frozenset[int]:
    """The ids that end a request: the model's and its own, or none."""
    return frozenset() if request.ignore_stop else limits.stop_ids | request.stop_ids


def check_fits(request: Request, limits: Limits) -> None:
    """Raises ValueError where the prompt leaves no room for a token, or holds an id outside the
    vocabulary."""
    if len(request.prompt) + 1 > limits.context:
        raise ValueError(
            f"request {request.id}: the prompt has {len(request.prompt)} tokens, expected at most "
            f"{limits.context - 1} (context {limits.context} less one output token)"
        )
    if not all(0 <= token < limits.vocab for token in request.prompt):
        wrong = next(token for token in request.prompt if not 0 <= token < limits.vocab)
        raise ValueError(
            f"request {request.id}: prompt token {wrong} is outside the vocabulary "
            f"(0 to {limits.vocab - 1})"
        )
    for stop in sorted(request.stop_ids):
        if not 0 <= stop < limits.vocab:
            raise ValueError(
                f"request {request.id}: stop id {stop} is outside the vocabulary "
                f"(0 to {limits.vocab - 1})"
            )


@dataclass(frozen=True)
class Outcome:
    """What became of one slot's group."""

    slot: int
    committed: Committed
    held: int = 0  # drafts the executor now holds for it
    drafts: tuple[int, ...] = ()  # their token ids
    confidence: tuple[float, ...] = ()  # the drafter's own, per draft
    error: str | None = None
    # Why the slot's speculation has ended: its drafter failed and was lost, it holds no drafts from
    # now on. Reported once, in the first outcome after it happened.
    speculation_disabled: str | None = None


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of one window: of each phase, and of a capture before them."""

    verify: float
    commit: float
    capture: float = 0.0
    path: Path = "eager"  # `capturing` if a capture was tried, failed or not

    @property
    def total(self) -> float:
        return self.verify + self.commit + self.capture


class StagedWindow(Protocol):
    """One window, staged. Its two phases, verify and commit, read and write device tables only:
    graphs of them serve every window with the same layout key and the same graph constants."""

    @property
    def groups(self) -> Sequence[Group]:
        """In ascending slot order. Where the device plans, known with the outcomes."""
        ...

    @property
    def graph_constants(self) -> Hashable:
        """What a captured graph of it holds fixed beside its layout: bucket, depth, dtype,
        options."""
        ...

    @property
    def graph_epoch(self) -> int:
        """It changes when a buffer whose address graphs hold has been replaced."""
        ...

    @property
    def padded(self) -> int:
        """Rows of padding."""
        ...

    def verify(self) -> None:
        """Pack, target forward, picks, accept. Changes no committed state: it may run any number
        of times."""
        ...

    def commit(self) -> None:
        """Keep rows and draft: everything of a slot moves here, together."""
        ...

    def outcomes(self) -> Sequence[Outcome]:
        """One per group, in its order: read after the commit, once."""
        ...


class Executor(Protocol):
    """Two implementations: the model (tensors) and the tape (pure). The engine is the same code
    on both."""

    limits: Limits
    max_depth: int

    def check(self, request: Request) -> None:
        """Raises ValueError when this executor cannot serve the request: an option it lacks, or
        more than it has room for."""
        ...

    def admit(self, slot: int, request: Request) -> None:
        """The slot is this request's from now on; nothing of an earlier one is left."""
        ...

    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        """Prompt tokens start..stop-1. The last chunk ends as one commit (and drafts): its
        outcome; else None."""
        ...

    def window(self, groups: Sequence[Group], depth: int) -> StagedWindow:
        """Stage a window. An exception here or in its phases means that these slots' state is
        lost."""
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
    """An executor whose device plans the windows itself, from the state that it holds. Results
    are read up to one window late, so that no host read stands between two windows; a slot is
    free again only after the read that shows its end."""

    policy: object  # the one that it carries out
    rows: int  # of a window

    def advance(
        self, caps: Mapping[int, int | None], depth: int, *, speculative: bool
    ) -> StagedWindow:
        """Stage the next window.

        caps, by slot: 0 = not in it, 1 = its anchor only, None = as many rows as the policy likes.
        speculative: whose turn it is; the rotation of each kind of turn goes on where it was."""
        ...


def device_planner(executor: Executor, policy: object, rows: int) -> DevicePlanningExecutor | None:
    """The executor where its device plans. Raises ValueError where that is something else than the
    engine is given."""
    if not isinstance(executor, DevicePlanningExecutor):
        return None
    if (executor.policy, executor.rows) != (policy, rows):
        raise ValueError(
            f"the device plans {executor.rows} rows by {executor.policy}, "
            f"expected what is given: {rows} rows, {policy}"
        )
    return executor
