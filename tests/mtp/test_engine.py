"""The engine on tapes: what is emitted never depends on slots, rows, policy, arrivals or
company."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.policies import RotateGrow, StaticK, WindowResult
from mtp.request import Request
from tests.support.tapes import LIMITS, engine_of, expected, random_tape

POLICIES = [RotateGrow(), *(StaticK(k) for k in (0, 1, 3))]


@st.composite
def workloads(draw):
    requests = {}
    for index in range(draw(st.integers(1, 7))):
        max_new = draw(st.integers(1, 40))
        request = Request(
            id=f"r{index}",
            prompt=tuple(range(1, 1 + draw(st.integers(1, 63)))),
            max_new_tokens=max_new,
            arrival_s=draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])),
            stop_ids=frozenset(draw(st.sets(st.integers(0, 99), max_size=3))),
            min_new_tokens=draw(st.integers(0, min(3, max_new))),
            ignore_stop=draw(st.booleans()),
        )
        requests[request] = random_tape(draw(st.integers(0, 10**6)))
    return requests


@settings(max_examples=300, deadline=None)
@given(
    workloads(),
    st.sampled_from(POLICIES),
    st.integers(1, 5),
    st.integers(1, 12),
    st.sampled_from([1, 3, 16, 256]),
)
def test_tokens_equal_plain_decoding_whatever_policy_slots_rows_and_chunks(
    requests, policy, slots, rows, chunk
):
    engine = engine_of(requests, policy, slots=slots, rows=rows, prefill_chunk=chunk)
    finished = {done.id: done for done in engine.run()}
    assert len(finished) == len(requests)
    for request, tape in requests.items():
        tokens, finish = expected(request, tape)
        done = finished[request.id]
        assert (list(done.tokens), done.finish) == (tokens, finish)
        committed = sum(
            round_.committed for round_ in engine.rounds if round_.request == request.id
        )
        assert committed == len(tokens) - 1  # the prefill's token is no window's
        assert len(done.emitted_s) == len(tokens)
    assert sorted(engine.scheduler.free) == list(range(slots))
    assert not engine.streams


@settings(max_examples=100, deadline=None)
@given(workloads(), st.sampled_from(POLICIES), st.integers(1, 5))
def test_windows_never_overflow_and_positions_follow_the_tokens(requests, policy, slots):
    engine = engine_of(requests, policy, slots=slots, rows=8)
    while engine.step():
        for stream in engine.streams.values():
            if not stream.prefilling:
                assert stream.position == len(stream.request.prompt) + len(stream.tokens) - 1
    by_window: dict[int, list] = {}
    for round_ in engine.rounds:
        by_window.setdefault(round_.window, []).append(round_)
    assert sorted(by_window) == list(range(engine.windows))
    for rounds in by_window.values():
        assert sum(round_.rows for round_ in rounds) <= 8
        assert [round_.slot for round_ in rounds] == sorted(round_.slot for round_ in rounds)
        assert all(
            round_.accepted == max(0, round_.committed - 1) <= round_.drafted for round_ in rounds
        )


def test_prefill_and_windows_alternate_while_both_have_work():
    requests = {
        Request("a", (1,), 30, ignore_stop=True): random_tape(1),
        Request("b", tuple(range(40)), 4): random_tape(2),
    }
    engine = engine_of(requests, StaticK(0), slots=2, prefill_chunk=4)
    while any(stream.prefilling for stream in engine.streams.values()) or not engine.streams:
        engine.step()
    kinds = [step.kind for step in engine.steps]
    assert kinds[:1] == ["prefill"]
    assert all(a != b for a, b in itertools.pairwise(kinds))


def test_drafts_made_for_another_prefix_are_not_used():
    request = Request("a", (1, 2), 20, ignore_stop=True)
    engine = engine_of({request: random_tape(3)}, RotateGrow(), slots=1)
    engine.step()
    engine.streams[0].held_for = (99, 99, 99)
    engine.step()
    assert engine.rounds[0].rows == 1


def test_cancel_ends_with_what_it_has_and_twice_is_a_no_op():
    requests = {
        Request(name, (1, 2), 30, ignore_stop=True): random_tape(n) for n, name in enumerate("abc")
    }
    engine = engine_of(requests, RotateGrow(), slots=2)
    for _ in range(4):
        engine.step()
    got = list(engine.streams[0].tokens)
    for name in ("a", "a", "c", "nobody"):
        engine.cancel(name)
    finished = {done.id: done for done in engine.run()}
    assert (list(finished["a"].tokens), finished["a"].finish) == (got, "cancelled")
    assert (finished["c"].tokens, finished["c"].finish) == ((), "cancelled")
    assert finished["b"].finish == "length"
    assert sorted(engine.scheduler.free) == [0, 1]


class FailingExecutor(TapeExecutor):
    """The n-th window raises after it has moved the first of its slots."""

    fail_at = 3

    def commit(self, groups, depth):
        self.fail_at -= 1
        if self.fail_at == 0:
            self._places[groups[0].slot].emitted += 1
            raise RuntimeError("device lost")
        return super().commit(groups, depth)


def test_S06_a_failed_window_ends_its_own_slots_once_and_the_others_go_on(capfd):
    requests = {Request(f"r{n}", (1, 2), 12, ignore_stop=True): random_tape(n) for n in range(4)}
    executor = FailingExecutor(
        {request.id: tape for request, tape in requests.items()}, limits=LIMITS
    )
    engine = Engine(executor, slots=4, rows=2, policy=StaticK(0))
    for request in requests:
        engine.submit(request)
    finished = {done.id: done for done in engine.run()}
    failed = [done for done in finished.values() if done.finish == "error"]
    assert len(failed) == 2
    assert len(engine.finished) == 4
    for request, tape in requests.items():
        tokens, _ = expected(request, tape)
        done = finished[request.id]
        assert list(done.tokens) == tokens[: len(done.tokens)]
        assert done.finish == "error" or list(done.tokens) == tokens
    out, err = capfd.readouterr()
    for stream in (out, err):
        assert sum(line.startswith("ERR ") for line in stream.splitlines()) == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("a", tuple([1] * 64), 1), "prompt has 64 tokens, expected at most 63"),
        (Request("a", (1, 100), 1), "token 100 is outside the vocabulary"),
        (Request("zzz", (1,), 1), "there is no tape"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_at_once(request_, message):
    engine = Engine(TapeExecutor({"a": random_tape(0)}, limits=LIMITS), slots=1, policy=StaticK(0))
    with pytest.raises(ValueError, match=message):
        engine.submit(request_)
    assert not engine.scheduler.queue


def test_an_id_is_taken_once():
    engine = engine_of({Request("a", (1,), 1): random_tape(0)}, StaticK(0), slots=1)
    with pytest.raises(ValueError, match="id is taken"):
        engine.submit(Request("a", (1,), 1))


@pytest.mark.parametrize("bad", [{"slots": 0}, {"rows": 0}, {"prefill_chunk": 0}])
def test_bad_sizes_name_the_value(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))} is 0"):
        Engine(TapeExecutor({}, limits=LIMITS), policy=StaticK(0), **({"slots": 1} | bad))


def test_the_pure_core_needs_no_torch():
    modules = "sys, mtp.engine, mtp.execution.tape, mtp.layouts, mtp.metrics"
    code = f"import {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class Watcher(StaticK):
    """A policy with state: it writes down what it is told."""

    def open(self):
        fresh = Watcher(self.k)
        vars(fresh)["log"] = []
        return fresh

    def observe(self, seen):
        self.log.append(seen)

    def release(self, request):
        self.log.append(request)

    def report(self):
        return {}


def test_a_policy_with_state_is_told_all_that_happened_in_order():
    requests = {
        Request(f"r{i}", tuple(range(1, 4 + i)), max_new_tokens=9, ignore_stop=True): random_tape(i)
        for i in range(3)
    }
    policy = Watcher(3)
    engine = engine_of(requests, policy, slots=2)
    engine.run()
    # the settings stay as they were: every engine has a state of its own
    assert not hasattr(policy, "log")
    log = engine.learning.log
    emitted = {request.id: [] for request in requests}
    ended = []
    for entry in log:
        if isinstance(entry, str):
            ended.append(entry)
            continue
        assert not {part.request for part in entry.slots} & set(ended)
        assert entry.rows == max(1, sum(part.rows for part in entry.slots))
        assert entry.seconds > 0
        for part in entry.slots:
            request = next(request for request in requests if request.id == part.request)
            assert part.position == len(request.prompt) - 1 + len(emitted[part.request])
            assert (part.rows == 0) == (not emitted[part.request])
            emitted[part.request] += part.committed.tokens
    assert sorted(ended) == ["r0", "r1", "r2"]
    assert emitted == {done.id: list(done.tokens) for done in engine.finished}
    assert (
        sum(isinstance(entry, WindowResult) and entry.slots[0].rows > 0 for entry in log)
        == engine.windows
    )
