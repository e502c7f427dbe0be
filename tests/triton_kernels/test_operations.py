"""The wrappers: one opaque operation each, refusals in one sentence, recorded and replayed,
usable without Triton."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import triton_kernels as ops
from bench.gpu.check import CALLS, same_shape, tensors_of
from bench.inputs.windows import WindowData, random_window
from mtp.graphs.backends import CpuGraphs
from tests.support import ROOT
from tests.support.kernels.checks import same

INT = torch.int32


def data_of(seed: int) -> WindowData:
    return random_window(seed, slots=4, bucket=8, depth=3, vocab=24, dtype=torch.bfloat16)


class WindowResult(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def test_each_is_one_operation():
    data = data_of(1)
    picks, pack, accept = data.argmax_arguments(), data.pack_arguments(), data.accept_arguments()
    with WindowResult() as seen:
        ops.row_argmax(**picks)
        ops.pack_window(**pack)
        ops.accept_prefix(**accept)
        for stage in ("all", "accept", "plan"):
            ops.advance_window(
                stage, data.state, window=data.window, **data.advance_arguments(stage)
            )
    names = ("row_argmax", "pack_window", "accept_prefix", *["advance_window"] * 3)
    assert seen.names == [f"mtplab::{name}" for name in names]


@pytest.mark.parametrize("name", CALLS)
def test_wrappers_equal_the_twins(name):
    for seed in range(20):
        same(CALLS[name](random_window(seed), False), CALLS[name](random_window(seed), True))


@pytest.mark.parametrize("stage", ["all", "accept", "plan"])
def test_a_recording_replays_on_new_data(stage):
    """In-place tables and new results alike; recording itself changes nothing."""
    static = data_of(2)
    tables = [*static.state, *static.limits, *static.window, static.proposals]
    before = [tensor.clone() for tensor in tables]
    results: list[Tensor] = []

    def work() -> None:
        results[:] = CALLS[f"advance_window {stage}"](static, False)

    graph = CpuGraphs(contextlib.nullcontext).capture(work)
    same(tables, before)
    for seed in (2002, 3002):
        data = same_shape(static, seed)
        for place, value in zip(tensors_of(static), tensors_of(data), strict=True):
            place.copy_(value)
        graph.replay()
        same(results, CALLS[f"advance_window {stage}"](data, True))


REFUSALS: dict[str, Any] = {
    "stage is 'both'": {"stage": "both"},
    "policy is 'greedy'": {"policy": "greedy"},
    "k is 2": {"policy": "static_k", "k": 2},
    "rows is 0": {"rows": 0},
    "rows is 9": {"rows": 9},
    "vocab is 99": {"vocab": 99},
    "stage is 'plan'": {"stage": "plan"},
    "stage is 'all'": {"logits": None},
    "logits has shape": {"logits": torch.zeros(7, 24)},
    "logits is torch.float64": {"logits": torch.zeros(8, 24, dtype=torch.float64)},
    "logits has column stride": {"logits": torch.zeros(24, 8).t()},
    "proposals has shape": {"proposals": torch.zeros(7, 3, dtype=INT)},
    "proposals has 4 columns": {"proposals": torch.zeros(8, 4, dtype=INT)},
    "proposals has strides": {"proposals": torch.zeros(3, 8, dtype=INT).t()},
}


@pytest.mark.parametrize("message", REFUSALS)
def test_advance_refuses_options(message):
    data = data_of(3)
    given = {
        "stage": "all",
        "state": data.state,
        "window": data.window,
        **data.advance_arguments("all"),
    } | REFUSALS[message]
    refuse(given, message)


TABLES = [("state", name) for name in ops.SlotState._fields] + [
    ("limits", name) for name in ops.SlotLimits._fields
]
TABLES += [("window", name) for name in ops.Packed._fields]


@pytest.mark.parametrize(("group", "name"), TABLES)
def test_advance_refuses_tables(group, name):
    data = data_of(3)
    table = getattr(getattr(data, group), name)
    given = {
        "stage": "all",
        "state": data.state,
        "window": data.window,
        **data.advance_arguments("all"),
    }

    def changed(tensor: Tensor) -> dict[str, Any]:
        return given | {group: given[group]._replace(**{name: tensor})}

    refuse(changed(table.long()), f"{name} is torch.int64")
    refuse(changed(table[None]), f"{name} has shape")
    if table.numel() > 1:
        spread = torch.stack([table, table], -1)[..., 0]
        refuse(changed(spread), f"{name} has strides")
        ops.advance_window_torch(**changed(spread))


def test_at_most_64_slots_and_rows():
    large = torch.zeros(65, dtype=INT)
    for bucket in (0, 65):
        with pytest.raises(
            ValueError, match=f"bucket is {bucket}, expected at least 1 and at most 64"
        ):
            ops.pack_window(large[:2], large[:2, None], large[:2], large[:2], bucket=bucket)
    with pytest.raises(ValueError, match="65 slots, expected at most 64"):
        ops.pack_window(large, large[:, None], large, large, bucket=8)


def refuse(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        ops.advance_window(**given)
    assert "\n" not in str(refusal.value)
    assert "expected" in str(refusal.value)


def test_without_triton_the_twins_do_the_work():
    code = """
import sys
sys.modules["triton"] = None
import torch, triton_kernels
assert triton_kernels.row_argmax(torch.tensor([[1.0, 5.0, 5.0]])).ids.tolist() == [1]
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
