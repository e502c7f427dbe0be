"""What counts of a run on tapes."""

import pytest

from experiments.studies.calibrated import coin_tape
from experiments.studies.measure import full_batch
from mtp.costs import LinearCost
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.policies import StaticK
from mtp.request import Request


def test_the_drain_is_left_out_and_windows_are_shared_evenly():
    """Two plain requests of 6 and 20 tokens, one from each prefill. The first is alone in a
    window while the second is prefilled; its four others are shared; the 15 that the second then
    decodes alone do not count."""
    tapes = {"short": coin_tape((0.5,), 6, 1), "long": coin_tape((0.5,), 20, 2)}
    executor = TapeExecutor(
        tapes,
        limits=Limits(32_001, 100, frozenset()),
        cost=LinearCost(base=1.0, row=0.5, draft=0.0),
    )
    engine = Engine(executor, slots=2, policy=StaticK(0))
    for name, tape in tapes.items():
        engine.submit(Request(name, (0,), len(tape.tokens), ignore_stop=True))
    engine.run()
    measured = full_batch(engine, ["short", "long"], 2)
    assert measured["tokens"] == [5, 4]
    assert measured["seconds"] == pytest.approx([1.5 + 4 * 1.0, 4 * 1.0])
    assert (measured["windows"], measured["rows"], measured["late_capture"]) == (5, 9, 0.0)
    assert engine.windows == 20
