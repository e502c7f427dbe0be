"""A drafter that fails on the model executor: drafts are lost, never tokens, eagerly and through
captured graphs."""

from __future__ import annotations

import pytest
import torch

from mtp.buckets import Buckets
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import CpuGraphs
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.replay_drafter import ReplayDrafter

CPU = torch.device("cpu")
CONTEXT = 120
FAILURES = [
    ("clear", 1),
    ("clear", 3),
    ("prefill", 1),
    ("prefill", 3),
    ("advance", 1),
    ("advance", 2),
    ("advance", 9),
]


class Failing(ReplayDrafter):
    """Raises at the n-th call of one method."""

    def __init__(self, *args, method, at, **options):
        super().__init__(*args, **options)
        self.method, self.left = method, at

    def _count(self, method):
        if method == self.method:
            self.left -= 1
            if self.left == 0:
                raise RuntimeError(f"{method} failed")

    def clear(self, slot):
        self._count("clear")
        super().clear(slot)

    def prefill(self, *args):
        self._count("prefill")
        super().prefill(*args)

    def advance(self, *args):
        self._count("advance")
        return super().advance(*args)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return load_target(
        write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=6),
        slots=2,
        context=CONTEXT,
        dtype="fp32",
        device=CPU,
    )


def requests():
    return [
        Request(f"r{n}", tuple(range(5 + n, 12 + 2 * n)), new, ignore_stop=True)
        for n, new in enumerate((50, 95, 50, 50))
    ]


def run(target, drafter, reload, policy, layout=None):
    executor = ModelExecutor(
        target,
        drafter,
        slots=2,
        largest_group=4,
        depth=policy.depth,
        buckets=Buckets((4, 8)),
        device=CPU,
        reload_drafter=reload,
    )
    keyed = Keyed(layout, LayoutCache(8, CpuGraphs(executor.dry_run))) if layout else None
    engine = Engine(executor, slots=2, policy=policy, layout=keyed)
    for request in requests():
        engine.submit(request)
    return {done.id: done for done in engine.run()}, engine


@pytest.fixture(scope="module")
def reference(target):
    return run(target, None, None, StaticK(0))[0]


@pytest.mark.parametrize("layout", [None, "rows", pytest.param("slots", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("method", "at"), FAILURES)
@pytest.mark.parametrize("reloads", [True, False], ids=["reload", "no reload"])
def test_tokens_stay_exact_and_it_is_told(target, reference, layout, method, at, reloads, capfd):
    texts = [done.prompt + done.tokens for done in reference.values()]
    sound = {"slots": 2, "context": CONTEXT}
    reload = (lambda: ReplayDrafter(texts, **sound)) if reloads else None
    finished, engine = run(
        target, Failing(texts, method=method, at=at, **sound), reload, RotateGrow(), layout
    )
    assert {name: done.tokens for name, done in finished.items()} == {
        name: done.tokens for name, done in reference.items()
    }
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("ERR ")]
    assert lines == [line for line in out.splitlines() if line.startswith("ERR ")]
    if any("the drafter failed" in line for line in lines):
        plain = {name for name, done in finished.items() if done.speculation_disabled}
        assert plain == {
            line.split()[2] for line in lines if "continues with plain decoding" in line
        }
        for name in plain:  # a request that drafts never ends in three rounds of one row
            assert [round_.rows for round_ in engine.rounds if round_.request == name][-3:] == [
                1,
                1,
                1,
            ]
        if reloads:  # whoever comes later speculates again
            assert "r3" not in plain
            assert any(round_.accepted for round_ in engine.rounds if round_.request == "r3")
        else:
            assert "r3" in plain
            assert not any(round_.drafted for round_ in engine.rounds if round_.request == "r3")
    else:  # the failure fell into a capture: that window ran eagerly, and nothing was lost
        assert any("capture of layout" in line for line in lines)
        assert not any(done.speculation_disabled for done in finished.values())


def test_a_failure_in_a_capture_is_the_captures_alone(target, reference, capfd):
    """Advance 1 is the first prefill's, 2 the warm-up of the first window."""
    texts = [done.prompt + done.tokens for done in reference.values()]
    drafter = Failing(texts, method="advance", at=2, slots=2, context=CONTEXT)
    finished, engine = run(target, drafter, lambda: pytest.fail("reloaded"), RotateGrow(), "rows")
    assert {name: done.tokens for name, done in finished.items()} == {
        name: done.tokens for name, done in reference.items()
    }
    assert engine.executor.drafting.reloads == 0
    assert engine.layout.stats().failures == 1
    assert "ERR capture of layout" in capfd.readouterr().out
