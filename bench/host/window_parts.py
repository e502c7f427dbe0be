"""`python -m bench.host.window_parts`: where the time of a window goes, by kind of operation, on a
CPU.

Windows of 1, 4 x 1, 4 x 2 and 4 x 4 rows (slots x rows) as the engine runs them: staging, verify,
commit, drafts, the copy to the host. An operation's own time is torch's profile of it; `host` is
what the wall clock, without a profile, shows beyond all operations: Python, and the making of
tensors. Prints a Markdown table; `--out` also writes it as JSON. Further arguments are overrides of
a run (`target.dtype=fp32`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bench.decoding.runs import LoadedModel, Text, load
from experiments.config.checks import BadInput
from experiments.profile import Cell, Measurement
from mtp.files import whole
from mtp.profiling import profiling_ranges

WINDOWS = {"1": (1, 1), "4 x 1": (4, 4), "4 x 2": (8, 4), "4 x 4": (16, 4)}  # rows, slots
# the first that begins the name of an operation, or of one that it runs in, is its kind
KINDS = {
    "draft": "drafter",
    "picks": "picks",
    "mtplab::window_attention": "attention",
    "mtplab::gated_delta": "delta rule",
    "mtplab::causal_conv": "convolution",
    "aten::mm": "products",
    "aten::addmm": "products",
    "aten::linear": "products",
    "mkldnn::": "products",
    "mtplab::product": "products",
    "aten::rms_norm": "norms",
    "aten::silu": "activations",
    "aten::sigmoid": "activations",
    "aten::softplus": "activations",
    "aten::exp": "activations",
}
OTHER = "other operations"
SHOWN = list(dict.fromkeys([*KINDS.values(), OTHER]))


def parser_of(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="tiny_qwen")
    parser.add_argument("--drafter")
    parser.add_argument("--context", type=int, default=64, help="tokens of each slot")
    parser.add_argument("--depth", type=int, default=0, help="drafts after each window")
    parser.add_argument("--passes", type=int, default=12, help="windows of each kind")
    return parser


def loaded(options: argparse.Namespace, more: Sequence[str]) -> LoadedModel:
    """What the arguments ask for, on one thread, with room for every window. Raises BadInput."""
    overrides = ["device.threads=1", *more]
    return load(options.target, options.drafter, slots=4, rows=16, more=overrides)


def prompts_of(model: LoadedModel, length: int) -> list[Text]:
    """Of four slots, `length` tokens each."""
    text = [token for request in model.made.requests for token in request.prompt]
    text *= 1 + 4 * length // len(text)
    return [tuple(text[n : n + length]) for n in range(4)]


def place_of(event: Any) -> tuple[str, int]:
    """The kind of the outermost operation or range that has one, and of which window."""
    kind = OTHER
    while True:
        kind = next((kind for name, kind in KINDS.items() if event.name.startswith(name)), kind)
        if event.cpu_parent is None:
            return kind, event.id
        event = event.cpu_parent


def parts(measurement: Measurement, cell: Cell, passes: int) -> dict[str, float]:
    """Milliseconds of one window, medians, by kind, and `host` and `window` beside them."""
    wall = [measurement.window(cell) for _ in range(passes)]
    with profile(activities=[ProfilerActivity.CPU]) as found, profiling_ranges(record_function):
        for _ in range(passes):
            with record_function("window"):
                measurement.window(cell)
    spent: dict[int, Counter[str]] = {}
    for event in found.events():
        kind, window = place_of(event)
        if "::" in event.name:  # an operation, not a range
            spent.setdefault(window, Counter())[kind] += event.self_cpu_time_total / 1e3
    of = {kind: median(one[kind] for one in spent.values()) for kind in SHOWN}
    window_ms = 1e3 * median(wall)
    return {**of, "host": max(0.0, window_ms - sum(of.values())), "window": window_ms}


def table(of: dict[str, dict[str, float]]) -> str:
    """Markdown: milliseconds, and the share of the window."""
    lines = ["| ms (share) | " + " | ".join(of) + " |", "|---" * (len(of) + 1) + "|"]
    for kind in [*SHOWN, "host", "window"]:
        cells = [f"{one[kind]:.2f} ({one[kind] / one['window']:.0%})" for one in of.values()]
        if any(one[kind] for one in of.values()):
            lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(str(__doc__))
    parser.add_argument("--out", type=Path, help="a JSON file")
    options, more = parser.parse_known_args(arguments)
    try:
        model = loaded(options, more)
    except BadInput as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    prompts = prompts_of(model, options.context)
    measurement = Measurement(model.made, options.depth, prompts, options.context + 64)
    found = {}
    for name, (rows, slots) in WINDOWS.items():
        measurement.window((rows, slots, options.depth))
        found[name] = parts(measurement, (rows, slots, options.depth), options.passes)
    print(f"{model.name} in {model.dtype}, 1 thread, {options.context} tokens, {torch.__version__}")
    print(table(found))
    if options.out:
        with whole(options.out) as aside:
            aside.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
