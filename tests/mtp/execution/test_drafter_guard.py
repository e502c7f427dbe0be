"""A drafter that fails costs drafts, never tokens, and never in silence: on tapes, with a
drafter that raises on demand."""

from __future__ import annotations

import pytest

from mtp.engine import Engine
from mtp.execution.drafter_guard import DrafterGuard
from mtp.execution.tape import TapeExecutor
from mtp.grants import Rotate
from mtp.policies import RotateGrow
from mtp.request import Request
from tests.support.tapes import LIMITS, expected, random_tape


class Drafter:
    """clears, advances: which of these calls raise, counted from 1."""

    def __init__(self, clears=(), advances=()):
        self.clears, self.advances, self.cleared, self.advanced = clears, advances, [], []

    def clear(self, slot):
        self.cleared.append(slot)
        if len(self.cleared) in self.clears:
            raise RuntimeError("reset failed")

    def advance(self, slots):
        self.advanced.append(list(slots))
        if len(self.advanced) in self.advances:
            raise RuntimeError("state lost")


def run(drafter, reload, *, count=3, slots=3, grants=None, arrivals=()):
    requests = {
        Request(
            f"r{n}", (1, 2), 20, arrival_s=arrivals[n] if arrivals else 0.0, ignore_stop=True
        ): random_tape(n)
        for n in range(count)
    }
    executor = TapeExecutor(
        {r.id: tape for r, tape in requests.items()},
        limits=LIMITS,
        drafter=drafter,
        reload_drafter=reload,
    )
    engine = Engine(executor, slots=slots, policy=RotateGrow(), grants=grants)
    for request in requests:
        engine.submit(request)
    finished = {done.id: done for done in engine.run()}
    for request, tape in requests.items():
        assert (list(finished[request.id].tokens), finished[request.id].finish) == expected(
            request, tape
        )
    return engine, finished


def rows(engine, name, after=0):
    return [
        round_.rows for round_ in engine.rounds if round_.request == name and round_.window >= after
    ]


def said(capfd):
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("ERR ")]
    assert lines == [line for line in out.splitlines() if line.startswith("ERR ")]
    return lines


def test_a_drafter_that_works_is_cleared_once_per_request_and_never_reloaded(capfd):
    drafter = Drafter()
    _, finished = run(drafter, lambda: pytest.fail("reloaded"))
    assert sorted(drafter.cleared) == [0, 1, 2]
    assert all(done.speculation_disabled is None for done in finished.values())
    assert said(capfd) == []


def test_a_failed_reset_reloads_once_and_the_request_speculates(capfd):
    reloads = []

    def reload():
        reloads.append(Drafter())
        return reloads[-1]

    engine, finished = run(Drafter(clears=[1]), reload)
    assert len(reloads) == engine.executor.drafting.reloads == 1
    # reset there, and the failed reset is repeated
    assert sorted(reloads[0].cleared) == [
        0,
        0,
        1,
        2,
    ]
    assert all(max(rows(engine, name)) == 4 for name in finished)
    assert all(done.speculation_disabled is None for done in finished.values())
    assert len(said(capfd)) == 1


@pytest.mark.parametrize("how", ["the reload raises", "the new one fails too", "there is none"])
def test_where_that_fails_too_speculation_ends_for_that_request_alone(how, capfd):
    """The second request arrives later: it has its own chance."""
    reloads = []

    def reload():
        reloads.append(1)
        if len(reloads) == 1 and how == "the reload raises":
            raise OSError("no file")
        return Drafter(clears=[1] if len(reloads) == 1 else [])

    engine, finished = run(
        Drafter(clears=[1]), None if how == "there is none" else reload, count=2, slots=1
    )
    assert set(rows(engine, "r0")) == {1}
    assert finished["r0"].speculation_disabled
    told = said(capfd)
    assert sum("request r0 continues with plain decoding" in line for line in told) == 1
    if how == "there is none":
        assert finished["r1"].speculation_disabled
    else:
        assert finished["r1"].speculation_disabled is None
        assert max(rows(engine, "r1")) == 4


def test_a_state_lost_in_a_window_costs_no_request_its_speculation(capfd):
    reloads = []

    def reload():
        reloads.append(Drafter())
        return reloads[-1]

    engine, finished = run(Drafter(advances=[8]), reload)
    assert sorted(reloads[0].cleared) == [0, 1, 2]
    assert not any(done.speculation_disabled for done in finished.values())
    # the window is drafted for again
    lost = next(i for i, window in enumerate(reloads[0].advanced) if window)
    assert lost == 0
    assert all(max(rows(engine, name, after=6)) == 4 for name in finished)
    assert len(said(capfd)) == 1


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_state_lost_twice_ends_speculation_of_those_who_had_it_and_not_of_later_requests(
    again, capfd
):
    """again: the new drafter fails at that call; 1 is the repeated one."""
    reloads = []

    def reload():
        reloads.append(1)
        return Drafter(advances=[again] if len(reloads) == 1 else [])

    engine, finished = run(
        Drafter(advances=[6]), reload, count=4, slots=3, arrivals=(0.0, 0.0, 0.0, 0.3)
    )
    failed = {name for name, done in finished.items() if done.speculation_disabled}
    assert failed == {"r0", "r1", "r2"}
    assert max(rows(engine, "r3")) == 4
    for name in failed:
        assert rows(engine, name)[-1] == 1
        assert "state lost" in finished[name].speculation_disabled
    assert len(reloads) == (1 if again == 1 else 2)  # the second for r3
    assert sum("continues with plain decoding" in line for line in said(capfd)) == 3


def test_a_drafter_that_always_fails_is_not_asked_for_ever(capfd):
    made = []

    def broken():
        made.append(Drafter(advances=range(1, 99)))
        return made[-1]

    _, finished = run(broken(), broken)
    assert all(done.speculation_disabled for done in finished.values())
    assert len(made) == 2
    assert sum(len(drafter.advanced) for drafter in made) <= 2 * len(finished)


def test_a_holder_whose_drafter_fails_gives_its_grant_to_the_next(capfd):
    engine, finished = run(
        Drafter(advances=[3]), lambda: Drafter(advances=[1]), grants=Rotate(budget=50, share="tick")
    )
    assert finished["r0"].speculation_disabled
    assert [grant.request for grant in engine.grants.log] == ["r0", "r1", "r2"]
    assert next(grant.rounds for grant in engine.grants.log) == 3
    assert set(rows(engine, "r0")[-3:]) == {1}
    assert max(rows(engine, "r1")) == max(rows(engine, "r2")) == 4
    assert len(said(capfd)) == 2


def test_the_guard_without_a_drafter_does_nothing(capfd):
    guard = DrafterGuard(None)
    guard.admit(0)
    assert guard.call(lambda drafter: drafter.clear(0)) is None
    assert guard.speculation_disabled(0) is None
    guard.release(0)
    assert said(capfd) == []


def test_a_reason_is_told_once_and_gone_with_its_request():
    guard = DrafterGuard(Drafter(advances=[1]))
    guard.admit(0)
    assert guard.call(lambda drafter: drafter.advance([0])) is None
    assert "state lost" in guard.speculation_disabled(0)
    assert guard.speculation_disabled(0) is None
    assert 0 in guard.ended
    guard.release(0)
    assert not guard.ended
