"""`python -m bench.host.cpu_paths`: what a window costs with the CPU's own kernels and laid-out
weights, next to the plain torch twins and plain products.

Windows of 1, 4 x 1, 4 x 2 and 4 x 4 rows (slots x rows) with the same texts, in turns in one
process, one thread; the thread's CPU time, medians, so that other work on the machine counts less.
Further arguments are overrides of a run (`target.dtype=fp32`).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from statistics import median
from unittest import mock

import torch

from bench.decoding.runs import LoadedModel
from bench.host.window_parts import WINDOWS, loaded, parser_of, prompts_of
from experiments.config.checks import BadInput
from experiments.profile import Measurement
from triton_kernels import attention, causal_conv, gated_delta, gated_delta_commit, product

PATHS = ("kernels", "twins")  # as on this machine; the twins and plain products
MODULES = (attention, causal_conv, gated_delta, gated_delta_commit, product)


@contextlib.contextmanager
def kernel_path(name: str) -> Iterator[None]:
    """What is loaded and run while it is open takes that path."""
    with contextlib.ExitStack() as stack:
        if name == "twins":
            for module in MODULES:
                stack.enter_context(mock.patch.object(module, "cpu_kernels", return_value=None))
            stack.enter_context(mock.patch.object(product, "packs", return_value=False))
        yield


def measure(models: dict[str, Measurement], depth: int, passes: int) -> dict[str, dict[str, float]]:
    """Milliseconds by window and path."""
    found = {}
    for name, (rows, slots) in WINDOWS.items():
        times: dict[str, list[float]] = {path: [] for path in models}
        for number in range(passes + 1):
            for path in PATHS if number % 2 else reversed(PATHS):
                with kernel_path(path):
                    began = time.thread_time()
                    models[path].window((rows, slots, depth))
                    taken = time.thread_time() - began
                if number:  # the first one warms up
                    times[path].append(1e3 * taken)
        found[name] = {path: median(each) for path, each in times.items()}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    options, more = parser_of(str(__doc__)).parse_known_args(arguments)
    models: dict[str, LoadedModel] = {}
    try:
        for path in PATHS:
            with kernel_path(path):
                models[path] = loaded(options, more)
    except BadInput as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    texts = prompts_of(models["kernels"], options.context)
    measured = {
        path: Measurement(model.made, options.depth, texts, options.context + 64)
        for path, model in models.items()
    }
    found = measure(measured, options.depth, options.passes)
    one = models["kernels"]
    print(f"{one.name} in {one.dtype}, 1 thread, {options.context} tokens, {torch.__version__}")
    print("| rows | " + " | ".join(f"{path}, ms" for path in PATHS) + " | times as fast |")
    print("|---" * (len(PATHS) + 2) + "|")
    for name, of in found.items():
        ms = " | ".join(f"{of[path]:.1f}" for path in PATHS)
        print(f"| {name} | {ms} | {of['twins'] / of['kernels']:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
