"""Compiled variants of every kernel, as a window of 8 rows and 4 slots uses them; `python -m`
prints the tables of docs/kernels.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any
from unittest import mock

import torch
import triton

from bench.gpu.compiling import resources
from tests.emulator.driver import Launch, emulated
from triton_kernels import (
    Packed,
    SlotLimits,
    SlotState,
    accept,
    advance,
    argmax,
    attention,
    causal_conv,
    gated_delta,
    gated_delta_commit,
    pack,
    split_attention,
)

ARCHS = (80, 90, 100, 120)
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
BEGIN_ATTENTION, END_ATTENTION = "<!-- attention -->", "<!-- end of attention -->"


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
    options: dict[str, Any] = {"rows": 8, "policy": policy, "k": k}
    given = advance.arguments_of(stage, state, limits, window, logits=logits, **options)
    return advance._launch(*given)


def floats(*shape: int) -> torch.Tensor:
    return zeros(*shape, dtype=torch.float32)


def delta_verify() -> Any:
    rows = (
        floats(8, 16, 128),
        floats(8, 16, 128),
        floats(8, 32, 128),
        floats(8, 32),
        floats(8, 32),
    )
    return gated_delta._launch(*rows, floats(4, 32, 128, 128), zeros(5), deltas=floats(8, 32, 128))


def delta_commit() -> Any:
    left = (floats(2, 8, 16, 128), floats(2, 8, 32, 128), floats(2, 8, 32))
    return gated_delta_commit._launch(floats(2, 4, 32, 128, 128), *left, zeros(5), zeros(4))


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
    "gated_delta_verify": delta_verify,
    "gated_delta_commit": delta_commit,
    "causal_conv_verify": lambda: causal_conv._launch_verify(
        floats(8, 8192), floats(4, 8192), floats(4, 3, 8192), zeros(5)
    ),
    "causal_conv_commit": lambda: causal_conv._launch_commit(
        floats(2, 4, 3, 8192), floats(2, 8, 8192), zeros(5), zeros(4)
    ),
}
VARIANTS = WINDOW | STATE


def window_attention(
    dtype: torch.dtype, heads: int, kv_heads: int, size: int, **options: Any
) -> Any:
    rows = (zeros(8, n, size, dtype=dtype) for n in (heads, kv_heads, kv_heads))
    caches = (zeros(4, kv_heads, 4096, size, dtype=dtype) for _ in range(2))
    return attention._launch(*rows, *caches, zeros(8), zeros(5), zeros(4), scale=1.0, **options)


ATTENTION: dict[str, Callable[[], Any]] = {
    "bf16, 16 heads of 128 over 2": lambda: window_attention(torch.bfloat16, 16, 2, 128),
    "bf16, 32 heads of 128 over 2": lambda: window_attention(torch.bfloat16, 32, 2, 128),
    "bf16, 16 heads of 256 over 2": lambda: window_attention(torch.bfloat16, 16, 2, 256),
    "bf16, 4 heads of 256 over 1, sliding, capped": lambda: window_attention(
        torch.bfloat16, 4, 1, 256, sliding=512, softcap=50.0
    ),
    "bf16, 8 heads of 512 over 1": lambda: window_attention(torch.bfloat16, 8, 1, 512),
    "bf16, 9 heads of 64 over 3": lambda: window_attention(torch.bfloat16, 9, 3, 64),
    "fp16, 16 heads of 128 over 2": lambda: window_attention(torch.float16, 16, 2, 128),
    "fp32, 16 heads of 128 over 2": lambda: window_attention(torch.float32, 16, 2, 128),
    "fp32, 16 heads of 256 over 2": lambda: window_attention(torch.float32, 16, 2, 256),
}


@lru_cache
def compiled(name: str, arch: int | str) -> Launch:
    """The one launch that the variant is."""
    (launch,) = launches(VARIANTS[name], arch)
    return launch


@lru_cache
def attention_kernels(name: str, arch: int | str) -> list[Launch]:
    """Attention over the splits, and their merge. AMD: with the options that the kernels choose
    there."""
    if isinstance(arch, int):
        return launches(ATTENTION[name], arch)
    with mock.patch.object(split_attention, "STAGES", 2):
        return launches(ATTENTION[name], arch)


def launches(variant: Callable[[], Any], arch: int | str) -> list[Launch]:
    with emulated(arch, execute=False) as driver:
        variant()
    return driver.launches


def table() -> str:
    return "\n".join(
        [
            f"Triton {triton.__version__}: registers a thread / instructions / barriers.",
            "",
            *rows(VARIANTS, compiled, _barriers),
        ]
    )


def attention_table() -> str:
    head = (
        f"Triton {triton.__version__}: registers a thread / instructions / KB of shared memory a "
        "program."
    )
    return "\n".join(
        [head, "", *rows(ATTENTION, lambda name, arch: attention_kernels(name, arch)[0], _shared)]
    )


def _barriers(launch: Launch) -> str:
    return str(resources(launch.files["cubin"]).count("BAR.SYNC"))


def _shared(launch: Launch) -> str:
    return f"{launch.shared / 1024:.0f}"


def rows(
    names: Iterable[str], made: Callable[[str, int], Launch], last: Callable[[Launch], str]
) -> Iterator[str]:
    yield "| kernel | warps | " + " | ".join(f"sm_{arch}" for arch in ARCHS) + " |"
    yield "|---" * (len(ARCHS) + 2) + "|"
    for name in names:
        found = [made(name, arch) for arch in ARCHS]
        used = [(resources(launch.files["cubin"]), launch) for launch in found]
        cells = [
            f"{each.registers} / {each.instructions} / {last(launch)}" for each, launch in used
        ]
        yield f"| {name} | {found[0].warps} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(table(), attention_table(), sep="\n\n")
