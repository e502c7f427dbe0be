"""`CudaGraphs` on a driver that is pretended: what is called when, and what a failed capture
leaves."""

from __future__ import annotations

import contextlib

import pytest
import torch

from mtp.graphs.capture import capturing
from mtp.graphs.cuda import CudaGraphs
from mtp.layouts import LayoutCache
from tests.support.fake_cuda import FakeDriver


@pytest.fixture
def driver(monkeypatch):
    return FakeDriver(monkeypatch)


@pytest.fixture
def graphs(driver):
    return CudaGraphs(torch.device("cpu"), contextlib.nullcontext)


def nothing() -> None:
    pass


class StagedWindow:
    def __init__(self, commit=nothing):
        self.verify, self.commit = nothing, commit


def test_the_warm_up_rests_and_runs_on_the_side_stream(driver):
    seen = []

    @contextlib.contextmanager
    def dry_run():
        seen.append("rest")
        yield
        seen.append(driver.current.name)

    graphs = CudaGraphs(torch.device("cpu"), dry_run)
    graphs.warm(lambda: seen.append((driver.current.name, capturing())))
    assert seen == ["rest", ("side", True), "main"]
    assert driver.current is driver.main
    graphs = CudaGraphs(torch.device("cpu"), contextlib.nullcontext)
    with pytest.raises(ZeroDivisionError):
        graphs.warm(lambda: 1 // 0)
    assert (driver.current, capturing()) == (driver.main, False)


def test_K01_the_matmul_workspace_is_made_on_the_side_stream_before_any_capture(
    driver, monkeypatch
):
    """Made inside the first capture, it would lie in that graph's memory and go with it."""
    seen, product = [], torch.mm

    def mm(*operands):
        seen.append((driver.current.name, dict(driver.uses)))
        return product(*operands)

    monkeypatch.setattr(torch, "mm", mm)
    CudaGraphs(torch.device("cpu"), contextlib.nullcontext)
    assert seen == [("side", {})]


def test_an_empty_cache_does_not_end_the_pool(driver, graphs):
    """Torch refuses a capture into a pool whose last graph was reset."""
    cache = LayoutCache(1, graphs)
    for key in "ABAB":
        cache.run(key, StagedWindow())
    cache.clear()
    cache.run("C", StagedWindow())
    assert cache.stats().failures == 0
    assert len(driver.uses) == 1
    assert cache.stats().bytes == 2 * 3  # the pair and the pool's own


@pytest.mark.parametrize("call", ["invalidate", "own error"])
def test_a_failed_capture_ends_the_streams_capture_and_says_what_failed(
    driver, graphs, call, capfd
):
    def commit():
        if driver.capturing:
            driver.invalidate() if call == "invalidate" else {}["key"]

    cache = LayoutCache(4, graphs)
    cache.run("A", StagedWindow())
    cache.run("X", StagedWindow(commit))
    assert (driver.capturing, driver.current, capturing()) == (False, driver.main, False)
    assert ("not permitted" if call == "invalidate" else "KeyError") in capfd.readouterr().err
    cache.run("B", StagedWindow())
    stats = cache.stats()
    assert (stats.failures, stats.captures, len(cache)) == (1, 2, 2)
    # a fresh pool where the driver broke the old one
    assert len(driver.uses) == (2 if call == "invalidate" else 1)
    # graphs of both pools count
    assert stats.bytes == sum(2 * uses for uses in driver.uses.values())


@pytest.mark.parametrize("full", ["torch", "driver"])
def test_out_of_memory_evicts_and_tries_again_in_the_same_pool(driver, graphs, full):
    left = [1]

    def commit():
        if driver.capturing and left:
            left.pop()
            if full == "driver":
                raise RuntimeError("CUDA error: out of memory")
            driver.full()

    cache = LayoutCache(4, graphs)
    for key in "AB":
        cache.run(key, StagedWindow())
    cache.run("C", StagedWindow(commit))
    stats = cache.stats()
    assert (stats.captures, stats.evictions, stats.failures) == (3, 1, 0)
    assert "A" not in cache
    assert len(driver.uses) == 1


def test_a_thousand_layouts_leave_the_pool_as_it_was(driver, graphs):
    cache = LayoutCache(8, graphs)
    sizes = set()
    for key in range(1000):
        cache.run(key, StagedWindow())
        sizes.add(cache.stats().bytes)
    assert max(sizes) == 2 * (2 * 8 + 1)
    assert sum(driver.uses.values()) == 2 * 8 + 1
