"""Faults planted in the attention kernels, whose matrix instructions the emulator does not have:
the interpreter must notice each. A program of its own, as interpret.py is. Prints the faults
that were not noticed."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys
import tempfile
from pathlib import Path

from bench.inputs.mixers import attention_data
from tests.support.kernels.checks import check_attention
from tests.support.kernels.dot import sum_in_order
from tests.support.kernels.planted import Fault, planted

FILE, NAME = "split_attention.py", "attention"
FAULTS = [
    Fault("control", FILE, "place", "place", NAME),
    Fault("sees_the_next_row", FILE, "seen = place[None] <= position[:, None]", "seen = place[None] <= position[:, None] + 1", NAME),
    Fault("window_one_too_long", FILE, "position[:, None] - sliding", "position[:, None] - sliding - 1", NAME),
    Fault("first_split_not_merged", FILE, "range(lowest, last + 1, MERGED)", "range(lowest + 1, last + 1, MERGED)", NAME),
    Fault("split_not_faded", FILE, "fades[:, None], 0)", "1.0, 0)", NAME),
    Fault("sums_not_faded", FILE, "value, sums * fade[:, None]", "value, sums", NAME),
    Fault("another_slots_cache", FILE, "(slot.to(tl.int64) * kv_heads + kv_head) * capacity", "kv_head.to(tl.int64) * capacity", NAME),
    Fault("another_kv_head", FILE, "k_ptr += (group * k_stride + kv_head) * SIZE", "k_ptr += group * k_stride * SIZE", NAME),
    Fault("window_starts_a_block_late", FILE, "SPLIT, lowest // BLOCK * BLOCK)", "SPLIT, lowest // BLOCK * BLOCK + BLOCK)", NAME),
    Fault("read_only_window_written", FILE, "if WRITES:", "if True:", NAME),
    Fault("window_not_written", FILE, "new = (place < stop)", "new = (place < stop - 1)", NAME),
    Fault("beyond_the_length_read", FILE, "mask=(place < end)[:, None] & inside[None]", "mask=inside[None]", NAME),
    Fault("nan_weighed_by_zero", FILE, "tl.where(number != number, 0.0, number)", "number", NAME),
    Fault("counts_ignored", FILE, "counts = row - tl.load(starts_ptr + slot) < tl.load(counts_ptr + slot)", "counts = True", NAME),
    Fault("cap_left_out", FILE, "score = softcap * (", "score = 0 * score + (", NAME),
]  # fmt: skip
WINDOWS = [
    attention_data(0, lengths=[126, 2], sizes=[4, 1], shape=(2, 2, 16), softcap=0.7),
    attention_data(1, lengths=[3, 129], sizes=[2, 3], shape=(3, 1, 7), counts=[1, 3], sliding=2),
    attention_data(2, lengths=[5], sizes=[3], shape=(1, 1, 16)),
    attention_data(3, lengths=[70, 2], sizes=[4, 2], shape=(2, 1, 8), sliding=9, writes=False),
]
# the last row of a group is faulty: those before it are not
WINDOWS[2].v[2], WINDOWS[2].k[2] = (
    float("nan"),
    float("nan"),
)


def main() -> None:
    sum_in_order()
    for fault in FAULTS:
        with tempfile.TemporaryDirectory() as folder, planted(fault, Path(folder)) as kernels:
            noticed, kernels.split_attention.SPLIT = False, 128
            try:
                for window in WINDOWS:
                    check_attention(window, kernels)
            except AssertionError:
                noticed = True
            if noticed == (fault.name == "control"):
                print(fault.name)


if __name__ == "__main__":
    sys.exit(main())
