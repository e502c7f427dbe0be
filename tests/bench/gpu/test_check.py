"""The GPU check, as far as it goes without a GPU: its comparisons, its read of the logits, its
busy window."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import reduce
from operator import xor

import pytest
import torch

from bench.gpu import check as gpu_check
from bench.inputs.windows import random_window
from tests.emulator.driver import emulated
from tests.support import ROOT

CPU = torch.device("cpu")


def test_without_a_gpu_it_is_one_line_and_no_failure():
    command = [sys.executable, "-m", "bench.gpu.check"]
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        command, env=hidden, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("gpu-check: no GPU on this machine")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("name", gpu_check.CALLS)
def test_comparison_sees_every_result(name):
    for seed in (3, 4):
        assert gpu_check.check_eager(name, seed, CPU) == []
        data = random_window(seed, slots=3)
        results = [
            tensor.clone() for tensor in gpu_check.CALLS[name](random_window(seed, slots=3), True)
        ]
        for i, tensor in enumerate(results):
            if tensor.numel():
                wrong = [
                    *results[:i],
                    tensor.logical_not() if tensor.dtype == torch.bool else tensor + 1,
                    *results[i + 1 :],
                ]
                before = random_window(seed, slots=3)
                assert gpu_check.differences(name, before, wrong) == [f"{name}: result {i} differs"]
        assert gpu_check.differences(name, data, results) == []


def test_another_window_of_the_same_shape():
    first = random_window(5, slots=4, bucket=8, depth=3, vocab=64)
    other = gpu_check.same_shape(first, 1005)
    assert [tensor.shape for tensor in gpu_check.tensors_of(other)] == [
        tensor.shape for tensor in gpu_check.tensors_of(first)
    ]
    assert not torch.equal(other.logits, first.logits)


def test_the_read_touches_every_word_by_wide_loads():
    logits = torch.randn(2, 8200)
    with emulated(90) as driver:
        work = gpu_check.reader(logits)
        work()
    words = logits.view(torch.int32).flatten().tolist()
    (out,) = [
        cell.cell_contents
        for cell in work.__closure__
        if getattr(cell.cell_contents, "numel", int)() == 5
    ]
    assert out.tolist() == [reduce(xor, words[i : i + 4096]) for i in range(0, len(words), 4096)]
    assert "ld.global.v4.b32" in driver.launches[0].ptx


def test_a_busy_window_stays_full():
    data = gpu_check.busy_window(64, torch.bfloat16, CPU)
    work = gpu_check.seam(data)
    for name in [name for name in work if "read" not in name] * 3:
        work[name]()
        assert data.window.starts.tolist() == [0, 2, 4, 6, 8]
        assert data.state.live.tolist() == [1] * 4
