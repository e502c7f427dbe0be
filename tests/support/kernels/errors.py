"""`python -m tests.support.kernels.errors`: how far attention, on its kernels (in the
interpreter) and on its twin, is from float64. Prints the lines of docs/kernels.md."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from bench.inputs.mixers import attention_data, to
from bench.reference import mixer_oracle
from triton_kernels import attention

CASES = [
    ([3, 700, 130], [4, 4, 0], None, None),
    ([600, 0, 64], [1, 2, 4], 300, None),
    ([1100, 5], [4, 4], None, 30.0),
]


def dot_in_bf16(builder: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
    """The interpreter keeps bf16 as 16-bit integers and would multiply those."""
    values = [
        (x.data.astype(np.uint32) << 16).view(np.float32)
        if x.dtype == tl.bfloat16
        else x.data.astype(np.float32)
        for x in (a, b)
    ]
    return interpreter.TensorHandle(np.matmul(*values) + d.data, d.dtype.scalar)


def main() -> None:
    interpreter.InterpreterBuilder.create_dot = dot_in_bf16
    print("| dtype | kernels, interpreted | twin |\n|---|---|---|")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        worst = [0.0, 0.0]
        for seed, (lengths, sizes, sliding, softcap) in enumerate(CASES):
            data = attention_data(
                seed,
                lengths=lengths,
                sizes=sizes,
                shape=(6, 2, 64),
                dtype=dtype,
                sliding=sliding,
                softcap=softcap,
                poison=3e4,
            )
            want = mixer_oracle.attention(data)
            for i, work in enumerate((attention._launch, attention.window_attention_torch)):
                given = to(data, "cpu")
                error = (
                    work(*given.tensors(), **given.options).double() - want
                ).abs().max() / want.abs().max()
                worst[i] = max(worst[i], float(error))
        print(
            f"| {str(dtype).removeprefix('torch.')} | {worst[0]:.1e} | {worst[1]:.1e} |", flush=True
        )


if __name__ == "__main__":
    main()
