"""Who waits, who holds a slot, and what acts next: the queue, the slots, the grants and whose
turn it is. Pure Python."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from mtp.grants import Grants
from mtp.grants.protocol import Declines, Picked
from mtp.request import Request, Stream
from mtp.windows import WindowPlan


@dataclass(frozen=True)
class Schedule:
    """Who acts in one step."""

    caps: Mapping[int, int | None]  # by slot: 0 = not in it, 1 = its anchor only, None = no cap
    speculative: bool  # it is the turn of those who hold a grant
    start: int  # the slot id at which the window's rotation begins
    prefill: Stream | None  # whose next prompt chunk runs; None: the step is a window
    decoding: tuple[Stream, ...]  # who may be in the window, in ascending slot order

    @property
    def may_draft(self) -> bool:
        """Whether anybody in the window may use a draft."""
        return any(self.caps[stream.slot] is None for stream in self.decoding)


class Queue:
    """Requests by arrival, and by submission where that is equal. Every operation costs the same,
    however many wait (or the logarithm of it)."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []  # some of them have left
        self._waiting: dict[str, Request] = {}
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return (entry[-1] for entry in sorted(self._heap) if self._waits(entry[-1]))

    def put(self, request: Request) -> None:
        heapq.heappush(self._heap, (request.arrival_s, next(self._numbers), request))
        self._waiting[request.id] = request

    def first(self) -> Request | None:
        while self._heap and not self._waits(self._heap[0][-1]):
            heapq.heappop(self._heap)
        return self._heap[0][-1] if self._heap else None

    def take(self, request_id: str) -> Request | None:
        """It waits no longer. None: it did not."""
        return self._waiting.pop(request_id, None)

    def _waits(self, request: Request) -> bool:
        return self._waiting.get(request.id) is request


class Scheduler:
    """Requests on their way from the queue to a slot and out of it again."""

    def __init__(self, grants: Grants, slots: int) -> None:
        self.grants = grants
        self.queue = Queue()
        self.streams: dict[int, Stream] = {}  # by slot
        self.free = list(range(slots))  # a heap: the lowest slot is taken first
        self._start = {True: 0, False: 0}  # of the next rotation, by Schedule.speculative
        self._prefilled_last = {True: False, False: False}

    # ---- the queue

    def submit(self, request: Request) -> None:
        self.queue.put(request)

    def cancel(self, request_id: str) -> Request | None:
        """Marks what is live or in the ring; gives what leaves the queue at once."""
        if self.grants.cancel(request_id):
            return None
        for stream in self.streams.values():
            if stream.request.id == request_id:
                stream.cancelled = True
        return self.queue.take(request_id)

    # ---- the slots

    def promoted(self, declines: Declines) -> Iterator[tuple[Request, Stream | None, Picked]]:
        """Free grants go to the ring's next entries; those without a stream wait for a slot."""
        for request, picked in self.grants.promote(declines):
            streams = (s for s in self.streams.values() if s.request.id == request.id)
            yield request, next(streams, None), picked

    def arrived(self, elapsed_s: float, declines: Declines) -> Iterator[Request]:
        """Requests that get a slot now, first come first served. Every waiter of the ring has a
        slot kept free."""
        while len(self.free) > self.grants.waiters:
            request = self.queue.first()
            if request is None or request.arrival_s > elapsed_s:
                return
            self.queue.take(request.id)
            if self.grants.place(request, declines) != "waiting":
                yield request

    def seat(self, request: Request, context: int, start_s: float) -> Stream:
        """The request takes the lowest free slot."""
        slot = heapq.heappop(self.free)
        stream = self.streams[slot] = Stream(request, slot, context, start_s=start_s)
        return stream

    def leave(self, stream: Stream) -> None:
        """The request has ended: its slot is free and its grant is over."""
        del self.streams[stream.slot]
        heapq.heappush(self.free, stream.slot)
        self.grants.leave(stream.request.id)

    # ---- whose turn it is

    def next(self) -> Schedule:
        """The next step of the live streams, at least one. Prefills and windows alternate while
        both have work, and so do speculative and other steps where the grants share by tick."""
        turn = self.grants.turn(self.streams)
        acting = [self.streams[slot] for slot in sorted(self.streams) if turn.caps[slot] != 0]
        prefilling = [stream for stream in acting if stream.prefilling]
        decoding = tuple(stream for stream in acting if not stream.prefilling)
        prefill = bool(prefilling) and not (decoding and self._prefilled_last[turn.speculative])
        self._prefilled_last[turn.speculative] = prefill
        first = min(prefilling, key=lambda stream: stream.start_s) if prefill else None
        return Schedule(turn.caps, turn.speculative, self._start[turn.speculative], first, decoding)

    def launched(self, schedule: Schedule, plan: WindowPlan) -> None:
        """The window of this step is on its way: the rotation moves on, and who was left out is
        counted."""
        self._start[schedule.speculative] = plan.next_start
        entered = {group.slot for group in plan.groups}
        for stream in schedule.decoding:
            stream.skips = 0 if stream.slot in entered else stream.skips + 1
