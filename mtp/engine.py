"""The engine: one window from request to commit. Pure Python; every tensor lives behind the executor seam.

request -> grants (caps) -> policy (rows, depth) -> executor: pack, verify, picks, accept, commit, draft -> outcomes -> booked.
Read `Engine.step` first.
"""

from __future__ import annotations

import heapq
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from mtp.errors import print_error
from mtp.executor import DevicePlanningExecutor, Executor, Outcome
from mtp.grants import Discipline, Everyone, Turn
from mtp.layouts import Eager, Layout
from mtp.metrics import Round
from mtp.policies import Decision, Declining, Learning, Policy, WindowResult
from mtp.profiling import profiled
from mtp.request import Finish, Finished, Request, Stream
from mtp.steps import InFlight, Side, Step, round_of, slot_result


class Engine:
    """Drives requests through an executor, one step at a time.

    slots: requests that may be live at once; rows: of a window; grants: the discipline, None = everyone may speculate;
    prefill_chunk: prompt tokens of one prefill step; on_tokens(request id, tokens): called as tokens are committed.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        slots: int,
        rows: int = 8,
        policy: Policy,
        grants: Discipline | None = None,
        layout: Layout | None = None,
        prefill_chunk: int = 256,
        on_tokens: Callable[[str, Sequence[int]], None] | None = None,
    ) -> None:
        for name, value in (("slots", slots), ("rows", rows), ("prefill_chunk", prefill_chunk)):
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")
        if rows < min(policy.sizes):
            raise ValueError(
                f"rows is {rows}, expected at least the smallest group size ({min(policy.sizes)})"
            )
        self.executor = executor
        self.rows = rows
        self.learning = policy.open() if isinstance(policy, Learning) else None
        self.policy = self.learning or policy
        self.grants = (grants or Everyone()).open(slots)
        self.layout = layout or Eager(executor.now)
        self.prefill_chunk = prefill_chunk
        self.on_tokens = on_tokens
        self.waiting: deque[Request] = deque()  # by arrival
        self.streams: dict[int, Stream] = {}  # by slot
        self.free = list(range(slots))  # a heap: the lowest slot is taken first
        self.windows = 0
        self.rounds: list[Round] = []
        self.steps: list[Step] = []
        self.finished: list[Finished] = []
        self.began_s = executor.now()
        if isinstance(executor, DevicePlanningExecutor) and (executor.policy, executor.rows) != (
            policy,
            rows,
        ):
            raise ValueError(
                f"the device plans {executor.rows} rows by {executor.policy}, expected what is given: {rows} rows, {policy}"
            )
        self._device_planner = executor if isinstance(executor, DevicePlanningExecutor) else None
        self._in_flight: deque[InFlight] = deque()
        self._collected_s = self.began_s
        self._sides = {True: Side(), False: Side()}  # by Turn.speculative
        self._ids: set[str] = set()
        self._cancelled = False  # since the last step

    # ---- the caller's side

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ValueError when it cannot be served: prompt beyond the context, unknown ids, an id twice."""
        limits = self.executor.limits
        if len(request.prompt) + 1 > limits.context:
            raise ValueError(
                f"request {request.id}: the prompt has {len(request.prompt)} tokens, expected at most {limits.context - 1} "
                f"(context {limits.context} less one output token)"
            )
        if not all(0 <= token < limits.vocab for token in request.prompt):
            wrong = next(token for token in request.prompt if not 0 <= token < limits.vocab)
            raise ValueError(
                f"request {request.id}: prompt token {wrong} is outside the vocabulary (0 to {limits.vocab - 1})"
            )
        if request.id in self._ids:
            raise ValueError(f"request {request.id}: the id is taken")
        self.executor.check(request)
        self._ids.add(request.id)
        place = len(
            self.waiting
        )  # from the end: requests mostly come in the order of their arrival
        while place and self.waiting[place - 1].arrival_s > request.arrival_s:
            place -= 1
        self.waiting.insert(place, request)

    def cancel(self, request_id: str) -> None:
        """Mark a request: it ends at the next step, or when the ring picks it, with what it has. Unknown, ended or marked
        already: nothing happens."""
        self._cancelled = True
        if self.grants.cancel(request_id):
            return
        for stream in self.streams.values():
            if stream.request.id == request_id:
                stream.cancelled = True
        for request in [request for request in self.waiting if request.id == request_id]:
            self.waiting.remove(request)
            self._file(request, None, "cancelled")

    def run(self) -> list[Finished]:
        """Step until nothing is left; what finished, in the order it did."""
        while self.step():
            pass
        return self.finished

    # ---- one step

    def step(self) -> bool:
        """One action of those whose turn it is: a prefill chunk or a window; the two alternate while both have work. False
        when nothing is left."""
        begin_s = self.executor.now()
        if self._cancelled:
            self._collect(0)  # a slot is free only after the read of all that it took part in
            self._cancelled = False
        self._drop_cancelled()
        self._promote()
        self._admit()
        if self._in_flight and any(stream.prefilling for stream in self.streams.values()):
            self._collect(0)  # turns of prefills and windows come as if the host planned
            self._promote()
            self._admit()
        if not self.streams:
            self._collect(0)  # nobody is left in it
            if not self.waiting:
                return False
            self.executor.wait_until(self.began_s + self.waiting[0].arrival_s)
            return True
        begin_s = max(begin_s, self._collected_s)
        turn = self.grants.turn(self.streams)
        acting = [self.streams[slot] for slot in sorted(self.streams) if turn.caps[slot] != 0]
        prefilling = [stream for stream in acting if stream.prefilling]
        decoding = [stream for stream in acting if not stream.prefilling]
        side = self._sides[turn.speculative]
        side.prefilled_last = bool(prefilling) and not (decoding and side.prefilled_last)
        if side.prefilled_last:
            self._prefill(min(prefilling, key=lambda stream: stream.start_s), turn, begin_s)
        else:
            self._window(decoding, turn, side, begin_s)
        return True

    @property
    def next_window(self) -> int:
        """The number of the window that is launched next, as `Round.window` counts."""
        return self.windows + len(self._in_flight)

    @profiled("host")
    def _promote(self) -> None:
        """Free grants go to the ring's next. A waiter gets its slot here; one that was cancelled ends with what it has."""
        for request, picked in self.grants.promote(self._declines):
            stream = next(
                (stream for stream in self.streams.values() if stream.request.id == request.id),
                None,
            )
            if picked == "cancelled":
                self._end(stream, "cancelled") if stream else self._file(request, None, "cancelled")
            elif stream is None:
                self._seat(request)

    @profiled("host")
    def _admit(self) -> None:
        """Requests that have arrived find their place, first come first served; every waiter has a slot kept free for it."""
        now = self.executor.now()
        while (
            len(self.free) > self.grants.waiters
            and self.waiting
            and self.began_s + self.waiting[0].arrival_s <= now
        ):
            request = self.waiting.popleft()
            if self.grants.place(request, self._declines) != "waiting":
                self._seat(request)

    def _seat(self, request: Request) -> None:
        slot = heapq.heappop(self.free)
        stream = self.streams[slot] = Stream(
            request, slot, self.executor.limits.context, start_s=self.executor.now()
        )
        try:
            self.executor.admit(slot, request)
        except Exception as fault:
            self._fail([stream], fault)

    @profiled("prefill")
    def _prefill(self, stream: Stream, turn: Turn, begin_s: float) -> None:
        """One chunk of a prompt. The last one ends as one commit: the first token, and drafts."""
        begin = stream.prefilled
        end = min(begin + self.prefill_chunk, len(stream.request.prompt))
        depth = self.policy.depth if turn.caps[stream.slot] is None else 0
        try:
            outcome = self.executor.prefill(stream.slot, begin, end, depth)
        except Exception as fault:  # one slot's fault ends that slot only
            self._fail([stream], fault)
            return
        stream.prefilled = end
        stream.prefill_s += self.executor.now() - begin_s
        if outcome is not None:
            stream.position = end - 1
            if self.learning:
                self.learning.observe(
                    WindowResult(
                        (slot_result(stream, 0, outcome),),
                        1,
                        0,
                        depth,
                        self.executor.now() - begin_s,
                    )
                )
            self._book(stream, outcome, stream.prefill_s)
        self.steps.append(
            Step("prefill", end - begin, begin_s, self.executor.now(), speculative=turn.speculative)
        )

    @profiled(lambda engine: f"window {engine.next_window}")
    def _window(self, decoding: Sequence[Stream], turn: Turn, side: Side, begin_s: float) -> None:
        """One window: launched, and landed at once. Where the device plans, the window before it lands instead."""
        if self._device_planner:
            in_flight = self._launch_device_planned(self._device_planner, decoding, turn, begin_s)
        else:
            in_flight = self._launch(decoding, turn, side, begin_s)
        if in_flight is not None:
            self._in_flight.append(in_flight)
            self._collect(1 if self._device_planner else 0)

    def _launch(
        self, decoding: Sequence[Stream], turn: Turn, side: Side, begin_s: float
    ) -> InFlight | None:
        """The policy plans. None: the window failed."""
        decision = self._decide(decoding, turn, side)
        groups = decision.plan.groups
        if not groups:
            raise RuntimeError(
                f"the policy left the window empty although slots {[stream.slot for stream in decoding]} can run"
            )
        depth = (
            decision.depth if any(turn.caps[stream.slot] is None for stream in decoding) else 0
        )  # nobody here may use a draft
        start_s = self.executor.now()
        streams = {group.slot: self.streams[group.slot] for group in groups}
        try:
            work = self.executor.window(groups, depth)
            phases = self.layout.run(groups, work)
        except Exception as fault:
            self._fail(streams.values(), fault)
            return None
        side.start = decision.plan.next_start
        for stream in decoding:
            stream.skips = 0 if stream.slot in streams else stream.skips + 1
        return InFlight(work, streams, depth, phases, turn.speculative, begin_s, start_s)

    @profiled("host")
    def _decide(self, decoding: Sequence[Stream], turn: Turn, side: Side) -> Decision:
        views = [stream.view(turn.caps[stream.slot]) for stream in decoding]
        return self.policy.decide(views, rows=self.rows, start=side.start)

    def _launch_device_planned(
        self,
        planner: DevicePlanningExecutor,
        decoding: Sequence[Stream],
        turn: Turn,
        begin_s: float,
    ) -> InFlight | None:
        """The device plans, from the slots' state that it holds. None: the window failed."""
        streams = {stream.slot: stream for stream in decoding}
        depth = self.policy.depth if any(turn.caps[slot] is None for slot in streams) else 0
        start_s = self.executor.now()
        work = None
        try:
            work = planner.advance(turn.caps, depth, speculative=turn.speculative)
            phases = self.layout.run((), work)
        except Exception as fault:
            self._collect(0)
            hit = (
                streams
                if work is None
                else {
                    group.slot: streams[group.slot]
                    for group in work.groups
                    if group.slot in streams
                }
            )
            self._fail(hit.values(), fault)
            return None
        return InFlight(work, streams, depth, phases, turn.speculative, begin_s, start_s)

    def _collect(self, most: int) -> None:
        """Book the windows in flight, oldest first, until at most that many are left."""
        while len(self._in_flight) > most:
            in_flight = self._in_flight.popleft()
            try:
                outcomes = in_flight.work.outcomes()
            except Exception as fault:
                self._fail(in_flight.streams.values(), fault)
                continue
            self._book_window(in_flight, outcomes)

    @profiled("host")
    def _book_window(self, in_flight: InFlight, outcomes: Sequence[Outcome]) -> None:
        """Every slot of the window, but for those whose request has ended since its launch."""
        end_s = self.executor.now()
        begin_s, start_s = (
            max(in_flight.begin_s, self._collected_s),
            max(in_flight.start_s, self._collected_s),
        )
        groups = in_flight.work.groups
        rows = sum(group.rows for group in groups)
        collected = [
            (stream, group, outcome)
            for group, outcome in zip(groups, outcomes, strict=True)
            if self.streams.get(group.slot) is (stream := in_flight.streams[group.slot])
        ]
        if self.learning:
            parts = tuple(
                slot_result(stream, group.rows, outcome) for stream, group, outcome in collected
            )
            self.learning.observe(
                WindowResult(
                    parts,
                    rows,
                    in_flight.work.padded,
                    in_flight.depth,
                    end_s - begin_s - in_flight.phases.capture,
                )
            )
        for stream, group, outcome in collected:
            self.rounds.append(
                round_of(
                    self.windows,
                    stream,
                    group,
                    outcome,
                    start_s - self.began_s,
                    end_s - self.began_s,
                )
            )
            stream.rounds += 1
            stream.accepted += outcome.committed.accepted
            self._book(stream, outcome, end_s - start_s)
        self.windows += bool(collected)
        self._collected_s = self.executor.now()
        self.steps.append(
            Step(
                "window",
                rows,
                begin_s,
                self._collected_s,
                in_flight.work.padded,
                in_flight.phases,
                in_flight.speculative,
            )
        )

    # ---- booking

    def _book(self, stream: Stream, outcome: Outcome, seconds: float) -> None:
        """What was committed moves the stream: tokens, position and held drafts together. Then the grants count the round."""
        committed, request_id = outcome.committed, stream.request.id
        now = self.executor.now()
        stream.tokens.extend(committed.tokens)
        stream.position += committed.kept
        stream.emitted_s.extend([now - self.began_s] * committed.kept)
        stream.held, stream.confidence, stream.held_for = (
            outcome.held,
            outcome.confidence,
            stream.stamp,
        )
        if committed.tokens and self.on_tokens:
            self.on_tokens(request_id, committed.tokens)
        over = bool(committed.finish or outcome.speculation_disabled)
        self.grants.round(request_id, committed.kept, seconds, over=over)
        if outcome.speculation_disabled:
            print_error(f"request {request_id} goes on plainly: {outcome.speculation_disabled}")
            stream.speculation_disabled = outcome.speculation_disabled
            self.grants.decline(request_id)
        if committed.finish:
            if committed.finish == "error":
                print_error(f"request {request_id}: {outcome.error}")
            self._end(stream, committed.finish, outcome.error)

    def _declines(self, request: Request) -> bool:
        return isinstance(self.policy, Declining) and self.policy.declines(request)

    def _drop_cancelled(self) -> None:
        for stream in [stream for stream in self.streams.values() if stream.cancelled]:
            self._end(stream, "cancelled")

    def _fail(self, streams: Iterable[Stream], fault: Exception) -> None:
        """The step raised: its slots end with what they have, once; all others go on."""
        streams = [stream for stream in streams if self.streams.get(stream.slot) is stream]
        message = f"{type(fault).__name__}: {fault}"
        names = ", ".join(stream.request.id for stream in streams)
        print_error(f"step failed for request {names}: {message}")
        traceback.print_exception(fault, file=sys.stderr)
        for stream in streams:
            self._end(stream, "error", message)

    def _end(self, stream: Stream, finish: Finish, error: str | None = None) -> None:
        del self.streams[stream.slot]
        self.executor.release(stream.slot)
        heapq.heappush(self.free, stream.slot)
        self.grants.leave(stream.request.id)
        self._file(stream.request, stream, finish, error)

    def _file(
        self, request: Request, stream: Stream | None, finish: Finish, error: str | None = None
    ) -> None:
        if self.learning:
            self.learning.release(request.id)
        self.finished.append(
            Finished.of(
                request, stream, finish, error, began_s=self.began_s, end_s=self.executor.now()
            )
        )
