"""The tape executor: the engine's plans carried out on acceptance tapes, with a virtual clock. Pure Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtp.commit import commit_group
from mtp.costs import LinearCost
from mtp.execution.drafting import DrafterGuard
from mtp.execution.protocol import Limits, Outcome, stops_of
from mtp.request import Request
from mtp.tape import Tape
from mtp.windows import Group


@dataclass
class _Place:
    """A slot's request: emitted tokens so far, the anchor's position, drafts held."""

    request: Request
    tape: Tape
    emitted: int = 0
    position: int = 0


class TapeDrafter(Protocol):
    """A drafter that may fail. What it proposes is on the tapes."""

    def clear(self, slot: int) -> None: ...

    def advance(self, slots: Sequence[int]) -> None: ...


class TapeExecutor:
    """tapes: by request id; a tape must reach the request's stop token or its max_new_tokens. max_depth: of the recorded chains.

    drafter: None = one that never fails; reload_drafter: see `DrafterGuard`."""

    def __init__(
        self,
        tapes: Mapping[str, Tape],
        *,
        limits: Limits,
        cost: LinearCost | None = None,
        max_depth: int = 7,
        drafter: TapeDrafter | None = None,
        reload_drafter: Callable[[], TapeDrafter] | None = None,
    ) -> None:
        self.tapes = tapes
        self.drafting = DrafterGuard(drafter, reload_drafter)
        self.limits = limits
        self.max_depth = max_depth
        self._work = TapeWork(self)
        self._cost = cost or LinearCost()
        self._places: dict[int, _Place] = {}
        self._now = 0.0

    def check(self, request: Request) -> None:
        if request.id not in self.tapes:
            raise ValueError(f"request {request.id}: there is no tape of it")

    def admit(self, slot: int, request: Request) -> None:
        self._places[slot] = _Place(request, self.tapes[request.id])
        self.drafting.admit(slot)

    def release(self, slot: int) -> None:
        self.drafting.release(slot)
        self._places.pop(slot, None)

    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        place = self._places[slot]
        self.spend(self._cost.prefill(stop - start))
        if stop < len(place.request.prompt):
            return None
        place.position = stop - 1
        self.drafting.call(lambda drafter: drafter.advance([slot]), slot=slot)
        return self._commit(slot, [place.request.prompt[-1]], depth)

    def window(self, groups: Sequence[Group], depth: int) -> TapeWork:
        self._work.stage(groups, depth)
        return self._work

    def verify(self, groups: Sequence[Group], depth: int) -> None:
        self.spend(self._cost.window(sum(group.rows for group in groups), len(groups), depth))

    def commit(self, groups: Sequence[Group], depth: int) -> list[Outcome]:
        self.drafting.call(lambda drafter: drafter.advance([group.slot for group in groups]))
        return [self._commit(group.slot, self._fed(self._places[group.slot], group.rows), depth) for group in groups]

    def _fed(self, place: _Place, rows: int) -> list[int]:
        """Anchor and drafts: the true tokens as far as the chain matched, then one that is wrong."""
        anchor = place.emitted - 1
        right = place.tape.matches[anchor]
        ahead = [self._token(place, anchor + j) for j in range(rows)]
        return [token if j <= right else (token + 1) % self.limits.vocab for j, token in enumerate(ahead)]

    def _commit(self, slot: int, fed: list[int], depth: int) -> Outcome:
        place = self._places[slot]
        request = place.request
        picks = [self._token(place, place.emitted + k) for k in range(len(fed))]
        committed = commit_group(
            fed,
            picks,
            stop_ids=stops_of(request, self.limits),
            produced=place.emitted,
            max_new=request.max_new_tokens,
            position=place.position,
            context=self.limits.context,
            min_new=request.min_new_tokens,
        )
        place.emitted += committed.kept
        place.position += committed.kept
        if committed.finish:
            return Outcome(slot, committed)
        if slot in self.drafting.ended:
            return Outcome(slot, committed, plain_reason=self.drafting.plain_reason(slot))
        confidence = place.tape.confidence[place.emitted - 1] if place.tape.confidence else ()
        return Outcome(slot, committed, depth, confidence=tuple(confidence[:depth]))

    def _token(self, place: _Place, index: int) -> int:
        """Past the tape's end nothing is ever emitted: any id will do."""
        return place.tape.tokens[index] if index < len(place.tape.tokens) else 0

    def now(self) -> float:
        return self._now

    def wait_until(self, time_s: float) -> None:
        self._now = max(self._now, time_s)

    def spend(self, seconds: float) -> None:
        self._now += seconds


class TapeWork:
    """The window in work. There is one per executor, as there is one set of window buffers on a device."""

    padded = 0

    def __init__(self, executor: TapeExecutor) -> None:
        self._executor = executor

    def stage(self, groups: Sequence[Group], depth: int) -> None:
        self.groups, self._depth, self.baked = groups, depth, depth

    def verify(self) -> None:
        self._executor.verify(self.groups, self._depth)

    def commit(self) -> None:
        self._outcomes = self._executor.commit(self.groups, self._depth)

    def outcomes(self) -> Sequence[Outcome]:
        return self._outcomes

    @property
    def epoch(self) -> int:
        """Graphs of a tape hold no buffers."""
        return 0
