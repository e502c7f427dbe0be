"""The CPU recorder: what misuses a real graph fails here too."""

from __future__ import annotations

import contextlib

import pytest
import torch

from mtp.graphs.backends import CpuGraphs, FailingGraphs
from mtp.graphs.capture import CaptureError

nothing = contextlib.nullcontext


@pytest.fixture(params=[False, True], ids=["grad", "inference"])
def mode(request):
    with torch.inference_mode(request.param):
        yield


@pytest.mark.usefixtures("mode")
def test_a_capture_takes_no_effect_poisons_results_and_replays_on_the_same_storages():
    x, y, seen = torch.zeros(4), torch.zeros(4), {}

    def work():
        seen["double"] = x * 2
        y.add_(seen["double"].view(2, 2).reshape(4))

    graphs = CpuGraphs(nothing)
    graph = graphs.capture(work)
    assert y.tolist() == [0] * 4
    assert seen["double"].isnan().all()
    x.fill_(3)
    graph.replay()
    graph.replay()
    assert y.tolist() == [12] * 4
    x = torch.ones(4)  # another tensor under the same name changes nothing that was captured
    graph.replay()
    assert y.tolist() == [18] * 4
    assert graphs.pool_bytes() >= 16
    assert seen["double"].tolist() == [6] * 4
    graph.reset()
    assert seen["double"].isnan().all()  # the memory is no longer the graph's
    assert graphs.pool_bytes() == 0


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(
    "misuse",
    [
        lambda x: x.sum().item(),
        lambda x: x.tolist(),
        lambda x: bool(x[0] > 0),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x),
    ],
    ids=["item", "tolist", "bool", "mask", "equal"],
)
@pytest.mark.parametrize("swallowed", [False, True])
def test_host_reads_are_refused_even_when_the_error_is_swallowed(misuse, swallowed):
    x, y = torch.ones(3), torch.zeros(3)
    graphs = CpuGraphs(nothing)

    def work():
        try:
            misuse(x)
        except CaptureError:
            if not swallowed:
                raise

    with pytest.raises(CaptureError, match="not permitted in a capture"):
        graphs.capture(work)
    graphs.capture(lambda: y.add_(x)).replay()
    assert y.tolist() == [1, 1, 1]


def test_captures_do_not_nest():
    graphs = CpuGraphs(nothing)
    with pytest.raises(CaptureError, match="already under way"):
        graphs.capture(lambda: graphs.capture(nothing))


@pytest.mark.parametrize("call", ["warm", "capture", "instantiate"])
def test_the_failing_backend_fails_at_the_nth_call_only(call):
    graphs = FailingGraphs(CpuGraphs(nothing), {(call, 2): RuntimeError("boom")})
    y = torch.zeros(1)

    def once():
        graphs.warm(lambda: y.add_(0))
        graphs.capture(lambda: y.add_(1)).replay()

    once()
    with pytest.raises(RuntimeError, match="boom"):
        once()
    held = graphs.pool_bytes()
    once()
    assert y.item() == 2
    assert graphs.pool_bytes() == held
