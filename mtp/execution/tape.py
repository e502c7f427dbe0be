"""The tape executor: the engine's plans carried out on acceptance tapes, with a virtual clock.
Pure Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mtp.buckets import Buckets
from mtp.commit import commit_group
from mtp.costs import Cost, LinearCost
from mtp.execution.drafter_guard import DrafterGuard
from mtp.executor import Limits, Outcome, stops_of
from mtp.profiling import profiled
from mtp.request import Request
from mtp.tape import Tape
from mtp.windows import Group

TIGHT = Buckets(())


@dataclass
class _Place:
    """A slot's request: the ids that end it, tokens emitted so far, the anchor's position."""

    request: Request
    tape: Tape
    stops: frozenset[int]
    emitted: int = 0
    position: int = 0


class TapeDrafter(Protocol):
    """A drafter that may fail. What it proposes is on the tapes."""

    def clear(self, slot: int) -> None: ...

    def advance(self, slots: Sequence[int]) -> None: ...


class TapeExecutor:
    """tapes: by request id; a tape must reach the request's stop token or its max_new_tokens.
    max_depth: of the recorded chains; buckets: row counts that windows are padded to, padding costs
    as rows do.

    drafter: None = one that never fails; reload_drafter: see `DrafterGuard`."""

    def __init__(
        self,
        tapes: Mapping[str, Tape],
        *,
        limits: Limits,
        cost: Cost | None = None,
        buckets: Buckets = TIGHT,
        max_depth: int = 7,
        drafter: TapeDrafter | None = None,
        reload_drafter: Callable[[], TapeDrafter] | None = None,
    ) -> None:
        self.tapes = tapes
        self.drafting = DrafterGuard(drafter, reload_drafter)
        self.limits = limits
        self.buckets = buckets
        self.max_depth = max_depth
        self._work = TapeWindow(self)
        self._cost: Cost = cost or LinearCost()
        self._places: dict[int, _Place] = {}
        self._now = 0.0

    def check(self, request: Request) -> None:
        if request.id not in self.tapes:
            raise ValueError(f"request {request.id}: there is no tape of it")

    def admit(self, slot: int, request: Request) -> None:
        self._places[slot] = _Place(request, self.tapes[request.id], stops_of(request, self.limits))
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

    def window(self, groups: Sequence[Group], depth: int) -> TapeWindow:
        self._work.stage(groups, depth)
        return self._work

    @profiled("verify")
    def verify(self, groups: Sequence[Group]) -> None:
        self.spend(self._window_s(groups, 0))

    @profiled("commit")
    def commit(self, groups: Sequence[Group], depth: int) -> list[Outcome]:
        """Drafting costs what the depth adds to a window."""
        self.spend(self._window_s(groups, depth) - self._window_s(groups, 0) if depth else 0.0)
        if self.drafting.drafter is not None:
            self.drafting.call(lambda drafter: drafter.advance([group.slot for group in groups]))
        return [
            self._commit(group.slot, self._fed(self._places[group.slot], group.rows), depth)
            for group in groups
        ]

    def _window_s(self, groups: Sequence[Group], depth: int) -> float:
        rows = context = 0
        for group in groups:
            rows += group.rows
            context += self._places[group.slot].position
        return self._cost.window(self.buckets.round_up(rows), len(groups), depth, context=context)

    def _fed(self, place: _Place, rows: int) -> Sequence[int]:
        """Anchor and drafts."""
        anchor = place.emitted - 1
        return (
            (place.tape.tokens[anchor], *self._drafts(place, rows - 1))
            if rows > 1
            else place.tape.tokens[anchor : anchor + 1]
        )

    def _drafts(self, place: _Place, count: int) -> tuple[int, ...]:
        """Made with the last token as the anchor: the true ones as far as the chain matched,
        then one that is wrong."""
        begin = place.emitted
        right = place.tape.matches[begin - 1]
        if right >= count:
            return self._tokens(place, begin, count)
        true = self._tokens(place, begin, right + 1)
        return (*true[:-1], *[(true[-1] + 1) % self.limits.vocab] * (count - right))

    def _commit(self, slot: int, fed: Sequence[int], depth: int) -> Outcome:
        place = self._places[slot]
        request, tape = place.request, place.tape
        committed = commit_group(
            fed,
            self._tokens(place, place.emitted, len(fed)),
            stop_ids=place.stops,
            produced=place.emitted,
            max_new=request.max_new_tokens,
            position=place.position,
            context=self.limits.context,
            min_new=request.min_new_tokens,
        )
        place.emitted += committed.kept
        place.position += committed.kept
        if place.emitted > len(tape.tokens):
            raise ValueError(
                f"request {request.id}: its tape ends after {len(tape.tokens)} tokens, "
                "expected one that reaches its end"
            )
        if committed.finish:
            return Outcome(slot, committed)
        if slot in self.drafting.ended:
            return Outcome(
                slot, committed, speculation_disabled=self.drafting.speculation_disabled(slot)
            )
        held = tape.held(place.emitted - 1, depth)
        confidence = tape.confidence[place.emitted - 1][:held] if tape.confidence else ()
        return Outcome(slot, committed, held, self._drafts(place, held), confidence)

    def _tokens(self, place: _Place, begin: int, count: int) -> tuple[int, ...]:
        """Past the tape's end nothing is ever emitted: any id will do."""
        tokens = place.tape.tokens[begin : begin + count]
        return tokens if len(tokens) == count else tokens + (0,) * (count - len(tokens))

    def now(self) -> float:
        return self._now

    def wait_until(self, time_s: float) -> None:
        self._now = max(self._now, time_s)

    def spend(self, seconds: float) -> None:
        self._now += seconds


class TapeWindow:
    """The window in work. There is one per executor, as there is one set of window buffers on a
    device."""

    def __init__(self, executor: TapeExecutor) -> None:
        self._executor = executor
        self.padded = 0

    def stage(self, groups: Sequence[Group], depth: int) -> None:
        rows = sum(group.rows for group in groups)
        bucket = self._executor.buckets.round_up(rows)
        self.groups, self._depth, self.padded, self.graph_constants = (
            groups,
            depth,
            bucket - rows,
            (bucket, depth),
        )

    def verify(self) -> None:
        self._executor.verify(self.groups)

    def commit(self) -> None:
        self._outcomes = self._executor.commit(self.groups, self._depth)

    def outcomes(self) -> Sequence[Outcome]:
        return self._outcomes

    @property
    def graph_epoch(self) -> int:
        """Graphs of a tape hold no buffers."""
        return 0
