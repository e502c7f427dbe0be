"""A request, its stream while it holds a slot, and what remains of it when it is finished."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from mtp.commit import Committed
from mtp.fields import Frozen, Tupled
from mtp.windows import SlotView

Finish = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Request:
    """One stream to decode. Nothing changes it once it is made. Raises ValueError for values
    that cannot be served."""

    id: str
    prompt: Tupled[int] = Tupled()  # token ids
    max_new_tokens: int  # type: ignore[misc]
    priority: int = 1  # higher is more important
    arrival_s: float = 0.0  # seconds after the engine's start
    stop_ids: Frozen[int] = Frozen(required=False)  # in addition to the target's own
    min_new_tokens: int = 0  # stop ids cannot be picked before that many tokens
    ignore_stop: bool = False
    seed: int = 0  # of its random numbers

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError(f"request {self.id}: the prompt is empty, expected at least one token")
        if self.max_new_tokens < 1:
            raise ValueError(
                f"request {self.id}: max_new_tokens is {self.max_new_tokens}, expected at least 1"
            )
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(
                f"request {self.id}: min_new_tokens is {self.min_new_tokens}, "
                f"expected 0 to max_new_tokens ({self.max_new_tokens})"
            )
        if not 0 <= self.arrival_s < math.inf:
            raise ValueError(
                f"request {self.id}: arrival_s is {self.arrival_s}, expected 0 or more seconds"
            )


@dataclass
class Stream:
    """A request in its slot: the host's mirror of what the buffers object holds on the device."""

    request: Request
    slot: int
    context: int
    tokens: list[int] = field(default_factory=list)  # emitted so far
    position: int = 0  # of the anchor; == prompt + emitted - 1 once prefilled
    prefilled: int = 0  # prompt tokens in the cache
    held: int = 0  # drafts the executor holds for it
    held_for: tuple[int, int, int] = (-1, -1, -1)  # what they were made for: see `stamp`
    confidence: tuple[float, ...] = ()  # the drafter's own, per held draft
    rounds: int = 0  # windows it was in
    accepted: int = 0  # drafts accepted in them
    skips: int = 0  # windows in a row it was left out of
    cancelled: bool = False
    speculation_disabled: str | None = None  # why, where the drafter was lost to it
    prefill_s: float = 0.0  # seconds of its prefill so far
    start_s: float = 0.0  # when it got its slot, engine clock
    emitted_s: list[float] = field(default_factory=list)  # since the engine's start, per token

    @property
    def prefilling(self) -> bool:
        return self.prefilled < len(self.request.prompt)

    @property
    def room(self) -> int:
        return self.request.max_new_tokens - len(self.tokens)

    @property
    def stamp(self) -> tuple[int, int, int]:
        """(position, anchor, round): held drafts are of use only if they were made for it."""
        return (self.position, self.tokens[-1] if self.tokens else -1, self.rounds)

    def commit(self, committed: Committed, elapsed_s: float) -> None:
        """Tokens and position move together."""
        self.tokens.extend(committed.tokens)
        self.position += committed.kept
        self.emitted_s.extend([elapsed_s] * committed.kept)

    def hold(self, held: int, confidence: tuple[float, ...]) -> None:
        """Drafts that the executor has made for the stream as it is now."""
        self.held, self.confidence, self.held_for = held, confidence, self.stamp

    def view(self, cap: int | None) -> SlotView:
        """What a policy sees of it."""
        held = self.held if self.held_for == self.stamp else 0
        return SlotView(
            slot=self.slot,
            held=held,
            room=self.room,
            position=self.position,
            context=self.context,
            cap=cap,
            confidence=self.confidence if held else (),
            skips=self.skips,
            request=self.request.id,
        )


@dataclass(frozen=True)
class Finished:
    id: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    finish: Finish
    priority: int = 1
    error: str | None = None
    rounds: int = 0  # windows only, never the prefill
    accepted: int = 0  # drafts accepted in them
    arrival_s: float = 0.0
    start_s: float | None = None  # when it got its slot; None: never
    end_s: float = 0.0
    emitted_s: tuple[float, ...] = ()  # engine-clock time of each token
    speculation_disabled: str | None = None  # why its speculation ended before it did

    @classmethod
    def of(
        cls,
        request: Request,
        stream: Stream | None,  # None: the request never had a slot
        finish: Finish,
        error: str | None,
        *,
        began_s: float,  # the engine's start
        end_s: float,
    ) -> Finished:
        return cls(
            id=request.id,
            prompt=request.prompt,
            tokens=tuple(stream.tokens) if stream else (),
            finish=finish,
            priority=request.priority,
            error=error,
            rounds=stream.rounds if stream else 0,
            accepted=stream.accepted if stream else 0,
            arrival_s=request.arrival_s,
            start_s=stream.start_s - began_s if stream else None,
            end_s=end_s - began_s,
            emitted_s=tuple(stream.emitted_s) if stream else (),
            speculation_disabled=stream.speculation_disabled if stream else None,
        )
