"""One compiled variant of every kernel, as a window of 8 rows and 4 slots uses it; `python -m` prints the table of docs/kernels.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
import triton

from tests.emulator.driver import Launch, emulated
from tests.emulator.resources import resources
from triton_kernels import Packed, SlotLimits, SlotState, accept, advance, argmax, causal_conv, gated_delta, pack

ARCHS = (80, 90, 100, 120)
BEGIN, END = "<!-- table -->", "<!-- end of table -->"


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def row_argmax(dtype: torch.dtype) -> Any:
    return argmax._launch(zeros(8, 4096, dtype=dtype), 4096, None, None)


def pack_window() -> Any:
    return pack._launch(zeros(4), zeros(4, 3), zeros(4), zeros(4), 8)


def accept_prefix() -> Any:
    rows = (zeros(8), zeros(8, dtype=torch.bool), zeros(8), zeros(5))
    return accept._launch(4, *rows, *(zeros(4) for _ in range(6)), zeros(4, 16), zeros(4))


def advance_window(stage: str, policy: str, k: int = 0) -> Any:
    state = SlotState(*(zeros(4) for _ in range(5)), zeros(4, 3), zeros(1))
    limits = SlotLimits(*(zeros(4) for _ in range(4)), zeros(4, 16), zeros(4))
    window = Packed(*(zeros(8) for _ in range(4)), zeros(5))
    logits = None if stage == "plan" else zeros(8, 4096, dtype=torch.bfloat16)
    arguments = advance._check(stage, state, limits, window, logits, None, None, 8, policy, k, (1, 2, 4), dense=True)
    return advance._launch(*arguments)


def floats(*shape: int) -> torch.Tensor:
    return zeros(*shape, dtype=torch.float32)


def gated_delta_verify() -> Any:
    rows = (floats(8, 16, 128), floats(8, 16, 128), floats(8, 32, 128), floats(8, 32), floats(8, 32))
    return gated_delta._launch_verify(*rows, floats(4, 32, 128, 128), zeros(5), deltas=floats(8, 32, 128))


def gated_delta_commit() -> Any:
    left = (floats(2, 8, 16, 128), floats(2, 8, 32, 128), floats(2, 8, 32))
    return gated_delta._launch_commit(floats(2, 4, 32, 128, 128), *left, zeros(5), zeros(4))


WINDOW: dict[str, Callable[[], Any]] = {
    "row_argmax bf16": lambda: row_argmax(torch.bfloat16),
    "row_argmax fp16": lambda: row_argmax(torch.float16),
    "row_argmax fp32": lambda: row_argmax(torch.float32),
    "pack_window": pack_window,
    "accept_prefix": accept_prefix,
    "advance_window accept": lambda: advance_window("accept", "rotate_grow"),
    "advance_window plan rotate_grow": lambda: advance_window("plan", "rotate_grow"),
    "advance_window plan static_k": lambda: advance_window("plan", "static_k", 3),
    "advance_window all rotate_grow": lambda: advance_window("all", "rotate_grow"),
    "advance_window all static_k": lambda: advance_window("all", "static_k", 3),
}
STATE: dict[str, Callable[[], Any]] = {
    "gated_delta_verify": gated_delta_verify,
    "gated_delta_commit": gated_delta_commit,
    "causal_conv_verify": lambda: causal_conv._launch_verify(floats(8, 8192), floats(4, 8192), floats(4, 3, 8192), zeros(5)),
    "causal_conv_commit": lambda: causal_conv._launch_commit(floats(2, 4, 3, 8192), floats(2, 8, 8192), zeros(5), zeros(4)),
}
VARIANTS = WINDOW | STATE


@lru_cache
def compiled(name: str, arch: int | str) -> Launch:
    """The one launch that the variant is."""
    with emulated(arch, execute=False) as driver:
        VARIANTS[name]()
    (launch,) = driver.launches
    return launch


def table() -> str:
    lines = [f"Triton {triton.__version__}: registers a thread / instructions / barriers.", ""]
    lines += ["| kernel | warps | " + " | ".join(f"sm_{arch}" for arch in ARCHS) + " |", "|---" * (len(ARCHS) + 2) + "|"]
    for name in VARIANTS:
        launches = [compiled(name, arch) for arch in ARCHS]
        cells = []
        for launch in launches:
            used = resources(launch.files["cubin"])
            cells.append(f"{used.registers} / {used.instructions} / {used.count('BAR.SYNC')}")
        lines.append(f"| {name} | {launches[0].warps} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
