"""The compiled code, executed: every kernel against its twin, bit for bit, programs interleaved,
every access checked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from bench.inputs.windows import DTYPES, random_window
from tests.emulator.driver import emulated
from tests.emulator.machine import run
from tests.emulator.memory import Memory
from tests.support.kernels.checks import KERNELS, check, check_advance, check_argmax, same
from triton_kernels import argmax, row_argmax_torch

EVERY_RUN, SLOW = (90,), (80, 100, 120)
ARCHS = [*EVERY_RUN, *(pytest.param(arch, marks=pytest.mark.slow) for arch in SLOW)]
DTYPE_IDS = [str(dtype).removeprefix("torch.") for dtype in DTYPES]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["argmax", "pack", "accept", "advance"])
def test_random_windows(name, arch):
    check(name, arch, range(8 if name == "advance" else 25))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["gated_delta", "causal_conv"])
def test_state_of_random_windows(name, arch):
    check(name, arch, range(8))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("rows", [1, 8])
def test_a_group_has_the_bits_of_its_rows_one_by_one(rows, arch):
    check("gated_delta", arch, range(1), slots=2, starts=[0, rows, rows], shape=(1, 2, 16, 24))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["pack", "accept", "advance"])
def test_most_slots_and_rows(name, arch):
    check(name, arch, range(2), slots=64, bucket=64, depth=3)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_vocabularies_up_to_4096(dtype, arch):
    """Around the borders of vectors and chunks, wherever a row starts."""
    for seed, vocab in enumerate((1, 7, 8, 9, 16, 33, 1000, 4095, 4096)):
        with emulated(arch, seed=seed):
            check_argmax(random_window(seed, slots=2, bucket=3, vocab=vocab, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*EVERY_RUN, *SLOW])
@pytest.mark.parametrize("vocab", [4097, 8193, 49152, 151_936, 262_144])
def test_large_vocabularies(vocab, arch):
    for seed, dtype in enumerate(DTYPES):
        with emulated(arch, seed=seed):
            data = random_window(seed, slots=3, bucket=8, depth=3, vocab=vocab, dtype=dtype)
            check_argmax(data)
            check_advance(data, stages=("all",))


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*EVERY_RUN, *SLOW])
@pytest.mark.parametrize("name", ["argmax", "pack", "accept", "advance"])
def test_many_random_windows(name, arch):
    check(name, arch, range(1000, 1100))


@pytest.mark.parametrize("arch", ARCHS)
def test_a_tie_across_chunks_goes_to_the_lowest_id(arch):
    logits = torch.zeros(2, 9000, dtype=torch.bfloat16)
    logits[0, [3, 8500]] = 5.0
    logits[1, [8200, 8999]] = 5.0
    for seed in range(4):
        with emulated(arch, seed=seed) as driver:
            same(argmax._launch(logits, 9000, None, None), row_argmax_torch(logits))
            assert driver.launches[0].grid == (2, 2, 1)


@pytest.mark.parametrize("arch", EVERY_RUN)
@pytest.mark.parametrize("dtype", DTYPES, ids=DTYPE_IDS)
def test_extremes_of_every_dtype(dtype, arch):
    info = torch.finfo(dtype)
    special = [
        0.0,
        -0.0,
        info.max,
        -info.max,
        info.tiny,
        -info.tiny,
        float("inf"),
        float("-inf"),
        info.smallest_normal / 2,
    ]
    rows = [[a, b] for a in special for b in special] + [
        [nan, a] for a in special[:2] for nan in (math.nan, -math.nan)
    ]
    logits = torch.tensor(rows, dtype=dtype)
    with emulated(arch):
        same(argmax._launch(logits, 2, None, None), row_argmax_torch(logits))


def long_row(kernels: Any = KERNELS) -> None:
    """Row 15407 of a vocabulary of 151936, of which only that row is memory, and only its
    program runs."""
    row, stride, vocab = 15407, 151_936, 24
    with emulated(90, execute=False) as driver:
        kernels.argmax._launch(torch.zeros(1, vocab), vocab, None, None)
    logits = np.zeros(vocab, np.float32)
    logits[17] = 3.0
    start = {
        "ids": np.full(1, -77, np.int32),
        "faults": np.full(1, 77, np.int8),
        "keys": np.array([-(2**63)]),
        "tickets": np.zeros(1, np.int32),
    }
    memory, base = Memory(), 1 << 40
    assert row * stride == 2_340_877_952
    memory.place(logits.view(np.uint8), base + 2_340_877_952 * 4)
    for i, table in enumerate(start.values(), 2):
        memory.place(table.view(np.uint8), i * base + row * table.itemsize)
    arguments = [base, stride, vocab, 0, 0, 0, *(i * base for i in range(2, 6))]
    run(driver.launches[0].ptx, (1 << 20, 1), arguments, memory=memory, programs=[(row, 0, 0)])
    assert {name: table.item() for name, table in start.items()} == {
        "ids": 17,
        "faults": 0,
        "keys": -(2**63),
        "tickets": 0,
    }


def test_a17_row_times_stride_beyond_31_bits():
    long_row()


def test_scratch_is_left_as_it_was_found():
    with emulated(80, seed=1):
        check_argmax(random_window(5, slots=3, bucket=8))
        check_advance(random_window(5, slots=3, bucket=8))
    keys, tickets = argmax.scratch(torch.device("cpu"), 1)
    assert (int(keys.max()), int(tickets.max())) == (-(2**63), 0)


@pytest.mark.parametrize(
    ("name", "sizes"), [("pack", {"slots": 0}), ("accept", {"slots": 0}), ("advance", {"slots": 0})]
)
def test_nothing_is_launched_without_slots(name, sizes):
    with emulated(90) as driver:
        for seed in range(4):
            check(name, 90, range(seed, seed + 1), **sizes)
    with emulated(90) as driver:
        argmax._launch(torch.zeros(0, 9), 9, None, None)
    assert driver.launches == []
