"""A request, and what remains of it when it is finished."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from mtp.windows import SlotView

Finish = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True)
class Request:
    """One stream to decode.

    prompt: token ids; priority: higher is more important; arrival_s: seconds after the engine's start; stop_ids: in addition
    to the target's own; min_new_tokens: stop ids cannot be picked before that many tokens; seed: of its random numbers.
    """

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    priority: int = 1
    arrival_s: float = 0.0
    stop_ids: frozenset[int] = frozenset()
    min_new_tokens: int = 0
    ignore_stop: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))
        object.__setattr__(self, "stop_ids", frozenset(self.stop_ids))
        if not self.prompt:
            raise ValueError(f"request {self.id}: the prompt is empty, expected at least one token")
        if self.max_new_tokens < 1:
            raise ValueError(
                f"request {self.id}: max_new_tokens is {self.max_new_tokens}, expected at least 1"
            )
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise ValueError(
                f"request {self.id}: min_new_tokens is {self.min_new_tokens}, expected 0 to max_new_tokens ({self.max_new_tokens})"
            )
        if not 0 <= self.arrival_s < math.inf:
            raise ValueError(
                f"request {self.id}: arrival_s is {self.arrival_s}, expected 0 or more seconds"
            )


@dataclass
class Stream:
    """A request in its slot: the host's mirror of what the buffers object holds on the device.

    position: the anchor's (== prompt + emitted - 1 once prefilled); prefilled: prompt tokens in the cache; held: drafts the
    executor holds, made for `held_for` = (position, anchor, round); prefill_s: seconds of its prefill so far; plain_reason: why
    its speculation ended; start_s, first_token_s, end_s: engine clock.
    """

    request: Request
    slot: int
    context: int
    tokens: list[int] = field(default_factory=list)
    position: int = 0
    prefilled: int = 0
    held: int = 0
    held_for: tuple[int, int, int] = (-1, -1, -1)
    confidence: tuple[float, ...] = ()
    rounds: int = 0
    accepted: int = 0
    skips: int = 0
    finish: Finish | None = None
    error: str | None = None
    cancelled: bool = False
    speculation_disabled: str | None = None
    prefill_s: float = 0.0
    start_s: float = 0.0
    first_token_s: float | None = None
    end_s: float | None = None
    emitted_s: list[float] = field(default_factory=list)

    @property
    def prefilling(self) -> bool:
        return self.prefilled < len(self.request.prompt)

    @property
    def room(self) -> int:
        return self.request.max_new_tokens - len(self.tokens)

    @property
    def stamp(self) -> tuple[int, int, int]:
        """What held drafts must have been made for."""
        return (self.position, self.tokens[-1] if self.tokens else -1, self.rounds)

    def view(self, cap: int | None) -> SlotView:
        """What a policy sees of it."""
        held = (
            self.held if self.held_for == self.stamp else 0
        )  # drafts made for another prefix are never used
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
    """rounds and accepted count windows only, never the prefill; emitted_s: engine-clock time of each token; plain_reason: why
    its speculation ended before it did, None = it did not."""

    id: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    finish: Finish
    priority: int = 1
    error: str | None = None
    rounds: int = 0
    accepted: int = 0
    arrival_s: float = 0.0
    start_s: float | None = None
    end_s: float = 0.0
    emitted_s: tuple[float, ...] = ()
    speculation_disabled: str | None = None

    @classmethod
    def of(
        cls,
        request: Request,
        stream: Stream | None,
        finish: Finish,
        error: str | None,
        *,
        began_s: float,
        end_s: float,
    ) -> Finished:
        """stream: None where the request never had a slot; began_s: the engine's start."""
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
