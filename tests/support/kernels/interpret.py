"""Every kernel against its twin in Triton's interpreter, and which of the kernels' lines ran. A
program of its own, because TRITON_INTERPRET must be set before Triton is first imported.
Arguments: seeds of windows;
plan=SEED: of a window that is only planned. Prints the lines that did not run."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import ast
import inspect
import sys
from collections import defaultdict
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch

import triton_kernels
from bench.inputs.mixers import MAKERS, attention_data
from bench.inputs.windows import random_window
from tests.support.kernels.checks import CHECKS, check_advance, poisoned_empty
from tests.support.kernels.dot import sum_in_order
from triton_kernels import split_attention

FOLDER = Path(triton_kernels.__file__).parent
FILES = (
    "argmax.py",
    "pack.py",
    "accept.py",
    "commit.py",
    "advance.py",
    "plan.py",
    "causal_conv.py",
    "gated_delta.py",
    "gated_delta_commit.py",
    "split_attention.py",
)


def kernel_lines(path: Path) -> set[int]:
    """First lines of the statements inside functions that Triton compiles."""
    lines: set[int] = set()
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef) or not any(
            ast.unparse(d) in ("jit", "kernel") for d in node.decorator_list
        ):
            continue
        for statement in ast.walk(node):
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if isinstance(statement, ast.stmt) and statement is not node and not is_text:
                lines.add(statement.lineno)
    return lines


def main() -> int:
    sum_in_order()
    ran: dict[str, set[int]] = defaultdict(set)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        name = Path(frame.f_code.co_filename)
        if name.parent != FOLDER or name.name not in FILES:
            return None
        ran[name.name].add(frame.f_lineno)
        return trace

    seeds = [int(text) for text in sys.argv[1:] if not text.startswith("plan=")]
    plans = [int(text[5:]) for text in sys.argv[1:] if text.startswith("plan=")]
    sys.settrace(trace)
    with mock.patch("torch.empty", poisoned_empty):
        CHECKS["argmax"](random_window(1, slots=2, bucket=2, vocab=9000))
        for seed in seeds:
            for check in (CHECKS[name] for name in ("argmax", "pack", "accept", "advance")):
                check(random_window(seed, slots=3, bucket=4, depth=3))
        for seed in plans:
            check_advance(random_window(seed, slots=3, bucket=4, depth=3), stages=("plan",))
        CHECKS["gated_delta"](MAKERS["gated_delta"](0, shape=(1, 1, 5, 3), starts=[0, 0, 1, 3]))
        CHECKS["causal_conv"](MAKERS["causal_conv"](1, shape=(2, 1)))
        split_attention.SPLIT = 64
        options = {"sliding": 70, "softcap": 3.0, "counts": [2, 0], "dtype": torch.float16}
        CHECKS["attention"](
            attention_data(1, lengths=[80, 0], sizes=[3, 1], shape=(2, 1, 8), **options)
        )
        sys.settrace(None)
        for seed in seeds:
            for name in ("gated_delta", "causal_conv"):
                CHECKS[name](MAKERS[name](seed))
            CHECKS["attention"](MAKERS["attention"](seed, most=150))
    left = {name: sorted(kernel_lines(FOLDER / name) - ran[name]) for name in FILES}
    for name, lines in left.items():
        for line in lines:
            print(
                f"{name}:{line}: "
                f"{inspect.cleandoc((FOLDER / name).read_text().splitlines()[line - 1])}"
            )
    return int(any(left.values()))


if __name__ == "__main__":
    sys.exit(main())
