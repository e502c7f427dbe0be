"""The engine: one window from request to commit. Pure Python; every tensor lives behind the
executor seam.

request -> grants (caps) -> policy (rows, depth) -> executor: pack, verify, picks, accept, commit,
draft -> outcomes -> booked. Read `Engine.step` first: schedule, then a prefill chunk, or decide ->
launch -> book.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from mtp.checks import check_integer
from mtp.errors import print_error
from mtp.executor import Executor, Outcome, check_fits, device_planner
from mtp.grants import Discipline, Everyone
from mtp.layouts import Eager, Layout
from mtp.policies import (
    Deciding,
    Decision,
    Learning,
    LivePolicy,
    Policy,
    SlotResult,
    WindowResult,
    check_decision,
    declines_of,
)
from mtp.profiling import profiled
from mtp.records import InFlight, Round, Step, round_of
from mtp.request import Finish, Finished, Request, Stream
from mtp.scheduler import Schedule, Scheduler
from mtp.windows import Group


class Engine:
    """Drives requests through an executor, one step at a time. Not thread-safe."""

    def __init__(
        self,
        executor: Executor,
        *,
        slots: int,  # requests that may be live at once
        rows: int = 8,  # of a window
        policy: Policy,
        grants: Discipline | None = None,  # None: everyone may speculate
        layout: Layout | None = None,  # None: windows run eagerly
        prefill_chunk: int = 256,  # prompt tokens of one prefill step
        on_tokens: Callable[[str, Sequence[int]], None] | None = None,  # (request id, committed)
    ) -> None:
        for name, value in (("slots", slots), ("rows", rows), ("prefill_chunk", prefill_chunk)):
            check_integer(name, value, 1)
        if rows < min(policy.sizes):
            raise ValueError(
                f"rows is {rows}, expected at least the smallest group size ({min(policy.sizes)})"
            )
        self._device_planner = device_planner(executor, policy, rows)
        self.executor = executor
        self.rows = rows
        self.policy: Deciding
        self.learning: LivePolicy | None = None
        if isinstance(policy, Learning):
            self.policy = self.learning = policy.open()
        else:
            self.policy = policy
        self._declines = declines_of(self.policy)
        self.grants = (grants or Everyone()).open(slots)
        self.layout = layout or Eager(executor.now)
        self.prefill_chunk = prefill_chunk
        self.on_tokens = on_tokens
        self.scheduler = Scheduler(self.grants, slots)
        self.streams = self.scheduler.streams  # by slot
        self.windows = 0
        self.rounds: list[Round] = []
        self.steps: list[Step] = []
        self.finished: list[Finished] = []
        self.began_s = executor.now()
        self._in_flight: deque[InFlight] = deque()
        self._collected_s = self.began_s
        self._ids: set[str] = set()
        self._cancelled = False  # since the last step

    # ---- the caller's side

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ValueError when it cannot be served: prompt beyond the
        context, unknown ids, an id twice."""
        check_fits(request, self.executor.limits)
        if request.id in self._ids:
            raise ValueError(f"request {request.id}: the id is taken")
        self.executor.check(request)
        self._ids.add(request.id)
        self.scheduler.submit(request)

    def cancel(self, request_id: str) -> None:
        """Mark a request: it ends at the next step, or when the ring picks it, with what it has.
        Nothing happens where the id is unknown, or the request has ended or is marked already."""
        self._cancelled = True
        request = self.scheduler.cancel(request_id)
        if request is not None:
            self._file(request, None, "cancelled")

    def run(self) -> list[Finished]:
        """Step until nothing is left. Gives what finished, in the order it did."""
        while self.step():
            pass
        return self.finished

    # ---- one step

    def step(self) -> bool:
        """One action of those whose turn it is: a prefill chunk or a window. False when nothing
        is left."""
        begin_s = self.executor.now()
        schedule = self._schedule()
        if schedule is None:
            return self._wait()
        begin_s = max(begin_s, self._collected_s)
        if schedule.prefill:
            self._prefill(schedule.prefill, schedule, begin_s)
        else:
            self._window(schedule, begin_s)
        return True

    @property
    def next_window(self) -> int:
        """The number of the window that is launched next, as `Round.window` counts."""
        return self.windows + len(self._in_flight)

    @profiled(lambda engine: f"window {engine.next_window}")
    def _window(self, schedule: Schedule, begin_s: float) -> None:
        """A window is launched and booked at once. Where the device plans, the one before it is
        booked instead, so that no host read stands between two windows."""
        decision = None if self._device_planner else self._decide(schedule)
        launched = self._launch(schedule, decision, begin_s)
        if launched is not None:
            self._in_flight.append(launched)
            self._collect(1 if self._device_planner else 0)

    # ---- schedule

    def _schedule(self) -> Schedule | None:
        """Requests that are due move into slots. None: no slot is in use."""
        if self._cancelled:
            self._collect(0)  # a slot is free only after the read of all that it took part in
            self._cancelled = False
        for stream in [stream for stream in self.streams.values() if stream.cancelled]:
            self._end(stream, "cancelled")
        self._admit()
        if self._in_flight and any(stream.prefilling for stream in self.streams.values()):
            self._collect(0)  # prefills and windows alternate as if the host planned
            self._admit()
        return self.scheduler.next() if self.streams else None

    @profiled("host")
    def _admit(self) -> None:
        """Free grants go to the ring's next: a waiter gets its slot, a cancelled one ends with what
        it has. Then free slots go to the queue's next."""
        for request, stream, picked in self.scheduler.promoted(self._declines):
            if picked == "cancelled" and stream:
                self._end(stream, "cancelled")
            elif picked == "cancelled":
                self._file(request, None, "cancelled")
            elif stream is None:
                self._seat(request)
        elapsed_s = self.executor.now() - self.began_s
        for request in self.scheduler.arrived(elapsed_s, self._declines):
            self._seat(request)

    def _seat(self, request: Request) -> None:
        context, start_s = self.executor.limits.context, self.executor.now()
        stream = self.scheduler.seat(request, context, start_s)
        try:
            self.executor.admit(stream.slot, request)
        except Exception as fault:
            self._fail([stream], fault)

    def _wait(self) -> bool:
        """Nobody has a slot: until the next arrival, or for good."""
        self._collect(0)
        request = self.scheduler.queue.first()
        if request is None:
            return False
        self.executor.wait_until(self.began_s + request.arrival_s)
        return True

    # ---- prefill

    @profiled("prefill")
    def _prefill(self, stream: Stream, schedule: Schedule, begin_s: float) -> None:
        """One chunk of a prompt. The last one ends as one commit: the first token, and drafts."""
        begin = stream.prefilled
        end = min(begin + self.prefill_chunk, len(stream.request.prompt))
        depth = self.policy.depth if schedule.caps[stream.slot] is None else 0
        try:
            outcome = self.executor.prefill(stream.slot, begin, end, depth)
        except Exception as fault:  # one slot's fault ends that slot only
            self._fail([stream], fault)
            return
        stream.prefilled = end
        stream.prefill_s += self.executor.now() - begin_s
        if outcome is not None:
            stream.position = end - 1
            result = SlotResult.of(stream, 0, outcome)
            self._observe(WindowResult((result,), 1, 0, depth, self.executor.now() - begin_s))
            self._book([(stream, outcome)], stream.prefill_s)
        times = begin_s, self.executor.now()
        self.steps.append(Step("prefill", end - begin, *times, speculative=schedule.speculative))

    # ---- decide, launch

    @profiled("host")
    def _decide(self, schedule: Schedule) -> Decision:
        views = [stream.view(schedule.caps[stream.slot]) for stream in schedule.decoding]
        decision = self.policy.decide(views, rows=self.rows, start=schedule.start)
        check_decision(decision, views, self.policy, rows=self.rows)
        return decision

    def _launch(
        self, schedule: Schedule, decision: Decision | None, begin_s: float
    ) -> InFlight | None:
        """The window is staged, verified and committed. decision: None where the device plans,
        from the slots' state that it holds. None: the window failed, and its slots have ended."""
        start_s = self.executor.now()
        streams = {stream.slot: stream for stream in schedule.decoding}
        groups: Sequence[Group] = ()
        depth, window = 0, None
        try:
            if decision is None:
                assert self._device_planner is not None
                depth = self.policy.depth if schedule.may_draft else 0
                window = self._device_planner.advance(
                    schedule.caps, depth, speculative=schedule.speculative
                )
            else:
                groups = decision.plan.groups
                streams = {group.slot: streams[group.slot] for group in groups}
                depth = decision.depth if schedule.may_draft else 0
                window = self.executor.window(groups, depth)
            phases = self.layout.run(groups, window)
        except Exception as fault:
            self._collect(0)
            if decision is None and window is not None:
                slots = [group.slot for group in window.groups]
                streams = {slot: streams[slot] for slot in slots if slot in streams}
            self._fail(streams.values(), fault)
            return None
        if decision is not None:
            self.scheduler.launched(schedule, decision.plan)
        return InFlight(window, streams, depth, phases, schedule.speculative, (begin_s, start_s))

    # ---- book

    def _collect(self, most: int) -> None:
        """Book the windows in flight, oldest first, until at most that many are left."""
        while len(self._in_flight) > most:
            in_flight = self._in_flight.popleft()
            try:
                outcomes = in_flight.window.outcomes()
            except Exception as fault:
                self._fail(in_flight.streams.values(), fault)
                continue
            self._book_window(in_flight, outcomes)

    @profiled("host")
    def _book_window(self, in_flight: InFlight, outcomes: Sequence[Outcome]) -> None:
        """Every slot of the window, but for those whose request has ended since its launch."""
        end_s = self.executor.now()
        begin_s, start_s = (max(s, self._collected_s) for s in in_flight.times)
        rows, padded = sum(g.rows for g in in_flight.window.groups), in_flight.window.padded
        live = in_flight.live(self.streams, outcomes)
        results = tuple(SlotResult.of(stream, group.rows, got) for stream, group, got in live)
        seconds = end_s - begin_s - in_flight.phases.capture
        self._observe(WindowResult(results, rows, padded, in_flight.depth, seconds))
        times = start_s - self.began_s, end_s - self.began_s
        for stream, group, outcome in live:
            self.rounds.append(round_of(self.windows, stream, group, outcome, *times))
            stream.rounds += 1
            stream.accepted += outcome.committed.accepted
        self._book([(stream, outcome) for stream, _, outcome in live], end_s - start_s)
        self.windows += bool(live)
        self._collected_s = self.executor.now()
        how = padded, in_flight.phases, in_flight.speculative
        self.steps.append(Step("window", rows, begin_s, self._collected_s, *how))

    def _observe(self, result: WindowResult) -> None:
        if self.learning:
            self.learning.observe(result)

    def _book(self, booked: Sequence[tuple[Stream, Outcome]], seconds: float) -> None:
        """What was committed moves the streams of a step: tokens, position and held drafts
        together. All are moved before any token is delivered, and rounds are counted and requests
        end whatever the callback does: its exception ends the request it was called for, alone."""
        elapsed_s = self.executor.now() - self.began_s
        for stream, outcome in booked:
            stream.commit(outcome.committed, elapsed_s)
            stream.hold(outcome.held, outcome.confidence)
        faults: dict[int, Exception] = {}
        try:
            for stream, outcome in booked:
                if outcome.committed.tokens and self.on_tokens:
                    try:
                        self.on_tokens(stream.request.id, outcome.committed.tokens)
                    except Exception as fault:
                        faults[stream.slot] = fault
        finally:
            for stream, outcome in booked:
                self._close_round(stream, outcome, seconds, faults.get(stream.slot))

    def _close_round(
        self, stream: Stream, outcome: Outcome, seconds: float, fault: Exception | None
    ) -> None:
        committed, request_id = outcome.committed, stream.request.id
        finish: Finish | None = "error" if fault else committed.finish
        over = bool(finish or outcome.speculation_disabled)
        self.grants.round(request_id, committed.kept, seconds, over=over)
        if outcome.speculation_disabled:
            why = outcome.speculation_disabled
            print_error(f"request {request_id} continues with plain decoding: {why}")
            stream.speculation_disabled = why
            self.grants.decline(request_id)
        if fault:
            self._fail([stream], fault, "on_tokens: ")
        elif finish:
            if finish == "error":
                print_error(f"request {request_id}: {outcome.error}")
            self._end(stream, finish, outcome.error)

    # ---- ends

    def _fail(self, streams: Iterable[Stream], fault: Exception, what: str = "") -> None:
        """It raised: these slots end with what they have, once; all others go on."""
        streams = [stream for stream in streams if self.streams.get(stream.slot) is stream]
        message = f"{what}{type(fault).__name__}: {fault}"
        names = ", ".join(stream.request.id for stream in streams)
        print_error(f"step failed for request {names}: {message}", fault)
        for stream in streams:
            self._end(stream, "error", message)

    def _end(self, stream: Stream, finish: Finish, error: str | None = None) -> None:
        self.scheduler.leave(stream)
        self.executor.release(stream.slot)
        self._file(stream.request, stream, finish, error)

    def _file(
        self, request: Request, stream: Stream | None, finish: Finish, error: str | None = None
    ) -> None:
        if self.learning:
            self.learning.release(request.id)
        times = {"began_s": self.began_s, "end_s": self.executor.now()}
        self.finished.append(Finished.of(request, stream, finish, error, **times))
