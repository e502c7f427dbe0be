"""Cancels, declines and faults under grants: nobody is lost, served twice, or left holding a
slot."""

from __future__ import annotations

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.grants import Rotate
from mtp.policies import StaticK
from mtp.request import Request
from tests.support.grant_loads import TICK, grants, load, states, steps
from tests.support.tapes import LIMITS, random_tape


def test_S02_cancel_only_marks_and_nothing_leaks_or_ends_twice():
    """Active C; ring [A parked, B waiting]; cancel A, A again, B; C ends."""
    engine = load(40, 8, 8, grants=Rotate(budget=4, share="tick"), priorities=(1, 1, 1))
    steps(engine, 6)
    assert (states(engine)["holding"], states(engine)["ring"]) == (["b"], ["c", "a"])
    (parked,) = (stream for stream in engine.streams.values() if stream.request.id == "a")
    got = tuple(parked.tokens)
    for name in ("a", "a", "c", "a"):
        engine.cancel(name)
    engine.step()
    assert states(engine)["ring"] == ["c", "a"]  # marked: they hold their places
    assert not engine.finished
    finished = {done.id: done for done in engine.run()}
    assert len(engine.finished) == 3
    assert (finished["a"].tokens, finished["a"].finish) == (got, "cancelled")
    assert (finished["c"].tokens, finished["c"].finish) == ((), "cancelled")
    assert finished["b"].finish == "length"
    assert sorted(engine.scheduler.free) == list(range(8))
    assert not engine.step()


def test_S02_cancel_between_admission_and_the_first_round():
    engine = load(8, 4, 4, prompt=9, prefill_chunk=4)
    engine.step()
    assert states(engine)["holding"] == ["a"]
    engine.cancel("a")
    finished = {done.id: done for done in engine.run()}
    assert (finished["a"].tokens, finished["a"].finish) == ((), "cancelled")
    assert [finished[name].finish for name in "bc"] == ["length", "length"]
    assert sorted(engine.scheduler.free) == list(range(8))


def test_a_cancelled_waiter_holds_its_place_until_picked_then_the_next_is_taken_at_once():
    engine = load(9, 3, 3, 3, grants=Rotate(budget=4, share="tick"))
    steps(engine, 2)
    engine.cancel("b")
    assert states(engine)["ring"] == ["b", "c"]
    steps(engine, 3)  # d, beyond the backlog, has a step in between
    while states(engine)["ring"][:1] == ["b"]:
        engine.step()
    assert states(engine)["holding"] == ["c"]
    assert [done.id for done in engine.finished if done.finish == "cancelled"] == ["b"]
    assert "d" not in grants(engine)


def test_a_cancelled_parked_request_decodes_no_further_even_where_parked_ones_do():
    engine = load(30, 30, grants=Rotate(budget=4, share="window"))
    while not any(entry.parked for entry in engine.grants.ring):
        engine.step()
    (parked,) = (entry.request.id for entry in engine.grants.ring if entry.parked)
    got = next(
        tuple(stream.tokens) for stream in engine.streams.values() if stream.request.id == parked
    )
    engine.cancel(parked)
    finished = {done.id: done for done in engine.run()}
    assert (finished[parked].tokens, finished[parked].finish) == (got, "cancelled")


def test_a_waiter_the_policy_declines_goes_to_plain_decoding():
    class Declining(StaticK):
        def declines(self, request):
            return request.id == "b"

    engine = load(8, 8, 8, policy=Declining(0))
    steps(engine, 2)
    assert states(engine)["ring"] == ["b", "c", "a"]
    finished = {done.id: done for done in engine.run()}
    assert grants(engine) == "a2 c2 a2 c2 a2 c2 a2 c2"
    assert [len(finished[name].tokens) for name in "abc"] == [8, 8, 8]


def test_S04_a_request_whose_admission_raises_ends_once_and_the_next_are_served(capfd):
    class Refusing(TapeExecutor):
        def admit(self, slot, request):
            if request.id == "a":
                raise RuntimeError("no room for its state")
            super().admit(slot, request)

    class Declining(StaticK):
        def declines(self, request):
            return request.id == "b"

    requests = {
        Request(name, (1,), 5, ignore_stop=True): random_tape(n) for n, name in enumerate("abc")
    }
    executor = Refusing({request.id: tape for request, tape in requests.items()}, limits=LIMITS)
    engine = Engine(executor, slots=3, policy=Declining(0), grants=TICK)
    for request in requests:
        engine.submit(request)
    finished = [(done.id, done.finish, len(done.tokens)) for done in engine.run()]
    assert sorted(finished) == [("a", "error", 0), ("b", "length", 5), ("c", "length", 5)]
    assert sum(line.startswith("ERR ") for line in capfd.readouterr().err.splitlines()) == 1
    assert sorted(engine.scheduler.free) == [0, 1, 2]


def test_S04_a_waiter_whose_admission_raises_lets_the_next_one_in():
    class Refusing(TapeExecutor):
        def admit(self, slot, request):
            if request.id == "b":
                raise RuntimeError("no room for its state")
            super().admit(slot, request)

    engine = load(6, 6, 6)
    engine.executor.__class__ = Refusing
    finished = {done.id: done.finish for done in engine.run()}
    assert finished == {"a": "length", "b": "error", "c": "length"}
    assert grants(engine) == "a2 c2 a2 c2 a2 c2"


def test_S06_a_failed_holder_ends_once_and_the_ring_goes_on():
    class Failing(TapeExecutor):
        def commit(self, groups, depth):
            if groups[0].slot == 0 and self._places[0].emitted == 3:
                raise RuntimeError("device lost")
            return super().commit(groups, depth)

    engine = load(9, 6, 6, 9)
    engine.executor.__class__ = Failing
    finished = {done.id: done for done in engine.run()}
    assert len(engine.finished) == 4
    assert {name: finished[name].finish for name in "abcd"} == {
        "a": "error",
        "b": "length",
        "c": "length",
        "d": "length",
    }
    assert len(finished["a"].tokens) == 3
    assert sorted(engine.scheduler.free) == list(range(8))
