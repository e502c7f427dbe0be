"""`python -m bench.gpu.compiled`: what the compiler makes of the seam and of peers' kernels, as a
table. No GPU is needed.

Rows of kind `compiled`, one a launch and architecture, go to the run's file of rows, if any. They
hold no time, and nothing of this machine: the figures are the binaries'. Peers are compiled from
their own source where it is installed or below `PEER_SOURCE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton

from bench.gpu.compiling import ARCHITECTURES, compiled
from bench.inputs.windows import WindowData
from bench.ops.uniform_windows import uniform_window
from bench.peers import run as peers
from bench.reference import plain_torch
from bench.rows import Row, commit, compiled_table, write_rows
from triton_kernels import accept, advance, argmax, pack
from triton_kernels.launch import scratch

SHAPE = peers.COMPILED


def _verify(data: WindowData) -> Callable[[], Any]:
    given = data.accept_arguments()
    tables = [given[name] for name in accept.INPUTS[2:]]
    return lambda: accept._launch(
        given["width"], *argmax._launch(data.logits, data.vocab, None, None), *tables
    )


def _separate(data: WindowData) -> Callable[[], Any]:
    """With the moves of the tables between them, in torch."""
    verify, tables, bucket = _verify(data), data.pack_arguments(), len(data.window.ids)
    kept = tables["group_rows"]  # nothing is executed, so any that is allowed

    def run() -> None:
        verify()
        drafts = plain_torch.following_drafts(data.window, kept, data.state.drafts, data.proposals)
        pack._launch(
            data.state.anchors, drafts, data.state.positions + kept, tables["group_rows"], bucket
        )

    return run


def _advance(*stages: str) -> Callable[[WindowData], Callable[[], Any]]:
    def form(data: WindowData) -> Callable[[], Any]:
        def run() -> None:
            for stage in stages:
                given: dict[str, Any] = data.advance_arguments(stage)
                tables: dict[str, Any] = {"state": data.state, "window": data.window}
                advance._launch(*advance.arguments_of(stage, **tables, **given))

        return run

    return form


FORMS: dict[tuple[str, str], Callable[[WindowData], Callable[[], Any]]] = {
    ("verify", "separate"): _verify,
    ("next_window", "separate"): _separate,
    ("next_window", "staged"): _advance("accept", "plan"),
    ("next_window", "fused"): _advance("all"),
}


def own_launches(architectures: tuple[int | str, ...] = ARCHITECTURES) -> Iterator[Row]:
    """A row a launch: of every form on every architecture."""
    data = uniform_window(SHAPE["slots"], SHAPE["vocab"], torch.bfloat16)
    # made once in the life of a process, no part of a window
    scratch(data.logits.device, SHAPE["rows"])
    for (operation, form), make in FORMS.items():
        run = make(data)
        for architecture in architectures:
            yield from rows_of(operation, form, **compiled(run, architecture))


def rows_of(
    operation: str,
    implementation: str,
    architecture: int | str,
    launches: list[dict[str, Any]],
    operations: list[str],
) -> Iterator[Row]:
    """launches: how many Triton launches there are; launch: which of them the row tells of, from
    1; operations: torch's beside them."""
    named = {
        "kind": "compiled",
        "operation": operation,
        "implementation": implementation,
        "shape": dict(SHAPE),
    }
    target = f"sm_{architecture}" if isinstance(architecture, int) else architecture
    about = {"evidence": "compiled", "versions": {"triton": triton.__version__}, "commit": commit()}
    for place, each in enumerate(launches, 1):
        counts = {
            "architecture": target,
            "launches": len(launches),
            "launch": place,
            "operations": operations,
        }
        yield {**named, **counts, **each, **about}


def main() -> int:
    rows = list(own_launches())
    for line, found in peers.compiled(rows_of):
        print(line)
        rows += found
    write_rows(rows)
    print(*compiled_table(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
