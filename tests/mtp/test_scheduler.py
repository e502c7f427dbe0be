"""The scheduler alone: the queue, the slots, and whose turn it is."""

from __future__ import annotations

import gc
from time import process_time

import pytest

from mtp.grants import Everyone
from mtp.request import Request
from mtp.scheduler import Scheduler
from mtp.windows import Group, WindowPlan


def seated(count: int) -> Scheduler:
    scheduler = Scheduler(Everyone(), count)
    for n in range(count):
        stream = scheduler.seat(Request(f"r{n}", (1, 2), 9), 64, float(n))
        stream.prefilled, stream.position = 2, 1
    return scheduler


def test_the_queue_is_by_arrival_and_by_submission_where_that_is_equal():
    scheduler = Scheduler(Everyone(), 2)
    for name, arrival in (("a", 1.0), ("b", 0.0), ("c", 1.0), ("d", 0.5)):
        scheduler.submit(Request(name, (1,), 1, arrival_s=arrival))
    assert [request.id for request in scheduler.queue] == ["b", "d", "a", "c"]
    assert scheduler.cancel("d").id == "d"
    assert scheduler.cancel("d") is None
    declines = lambda request: False  # noqa: E731
    assert [request.id for request in scheduler.arrived(0.9, declines)] == ["b"]
    assert [request.id for request in scheduler.queue] == ["a", "c"]


@pytest.mark.parametrize("order", [1, -1])
def test_N09_a_long_queue_costs_no_more_per_request_than_a_short_one(order: int):
    """As requests come, are cancelled, and leave."""

    def seconds(count: int) -> float:
        requests = [Request(f"r{n}", (1,), 1, arrival_s=float(n)) for n in range(count)][::order]
        scheduler = Scheduler(Everyone(), 2)
        began = process_time()
        for request in requests:
            scheduler.submit(request)
        for request in requests[::2]:
            scheduler.cancel(request.id)
        while (request := scheduler.queue.first()) is not None:
            scheduler.queue.take(request.id)
        return (process_time() - began) / count

    gc.disable()  # its pauses are the heap's of the whole suite
    try:
        assert min(seconds(6400) for _ in range(2)) < 16 * min(seconds(100) for _ in range(5))
    finally:
        gc.enable()


def test_a_request_takes_the_lowest_free_slot():
    scheduler = seated(3)
    scheduler.leave(scheduler.streams[1])
    scheduler.leave(scheduler.streams[0])
    assert scheduler.seat(Request("new", (1,), 1), 64, 0.0).slot == 0


def test_windows_in_a_row_that_leave_a_slot_out_are_counted_and_the_rotation_moves_on():
    scheduler = seated(3)
    skips = []
    for entered in ((0, 1), (0, 1), (1, 2), (0, 2)):
        schedule = scheduler.next()
        plan = WindowPlan(tuple(Group(slot, 1) for slot in entered), next_start=entered[-1])
        scheduler.launched(schedule, plan)
        skips.append([scheduler.streams[slot].skips for slot in range(3)])
        assert scheduler.next().start == entered[-1]
    assert skips == [[0, 0, 1], [0, 0, 2], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("prompts", [1, 2])
def test_prefills_and_windows_alternate_and_the_oldest_prompt_goes_first(prompts):
    scheduler = seated(3)
    for slot in range(prompts):
        scheduler.streams[2 - slot].prefilled = 0
    kinds = []
    for _ in range(4):
        schedule = scheduler.next()
        kinds.append(schedule.prefill.slot if schedule.prefill else "window")
    oldest = 3 - prompts
    assert kinds == [oldest, "window", oldest, "window"]
