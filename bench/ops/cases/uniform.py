"""What peers are given: every slot holds three drafts and has four rows, and nothing ends
(`bench.ops.uniform_windows`).

verify: from the logits to the tokens kept. next_window: from the logits to the ids and positions of
the next window. `bench.peers.run` adds the peers' own kernels on the same windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import triton_kernels as ops
from bench.inputs.windows import WindowData, moved
from bench.ops.cases.seam import DTYPES, VOCABS, advanced, three
from bench.ops.registry import Shape, Work, implementation
from bench.ops.uniform_windows import tokens_of, uniform_window
from bench.reference import oracle, plain_torch

SLOTS = (1, 4, 16)


def shapes(wide: bool) -> Iterator[Shape]:
    for dtype in DTYPES:
        for vocab in VOCABS if wide else VOCABS[:1]:
            for slots in SLOTS:
                yield {"slots": slots, "rows": 4 * slots, "vocab": vocab, "dtype": dtype}


def _data(shape: Shape) -> WindowData:
    return uniform_window(shape["slots"], shape["vocab"], DTYPES[shape["dtype"]])


def _tokens(out: Any) -> list[list[int]]:
    kept, tokens = out[0].tolist(), out[1].tolist()
    return [row[:count] for row, count in zip(tokens, kept, strict=True)]


@implementation("verify", "wrapper", shapes=shapes)
def _(shape: Shape, device: torch.device) -> Work:
    data = _data(shape)
    here = moved(data, device)
    window, (anchors, positions, produced, *_), limits = here.window, here.state, here.limits
    slots = (
        anchors,
        positions,
        produced,
        limits.max_new,
        limits.context,
        limits.min_new,
        limits.stop_ids,
        limits.stop_counts,
    )

    def call() -> Any:
        return ops.accept_prefix(
            *ops.row_argmax(here.logits, vocab=here.vocab),
            window.ids,
            window.starts,
            *slots,
            width=4,
        )

    return Work(call, tokens_of(data), here.logits.nbytes, read=_tokens)


@implementation("verify", "plain_torch", shapes=shapes)
def _(shape: Shape, device: torch.device) -> Work:
    data = _data(shape)
    here = moved(data, device)
    window, anchors = here.window, here.state.anchors

    def call() -> Any:
        return plain_torch.accept(
            plain_torch.picks(here.logits, here.vocab), window.ids, window.starts, anchors, 4
        )

    return Work(call, tokens_of(data), here.logits.nbytes, read=_tokens)


implementation("next_window", "separate", shapes=shapes)(
    three(ops.row_argmax, ops.accept_prefix, ops.pack_window, _data)
)
implementation("next_window", "staged", shapes=shapes)(advanced("accept", "plan", data_of=_data))
implementation("next_window", "fused", shapes=shapes)(advanced("all", data_of=_data))


@implementation("next_window", "plain_torch", shapes=shapes)
def _(shape: Shape, device: torch.device) -> Work:
    data = _data(shape)
    here, rows = moved(data, device), shape["rows"]
    state, following = (
        here.state,
        torch.full((shape["slots"],), 4, dtype=torch.int32, device=device),
    )

    def call() -> Any:
        tables = (
            here.window,
            here.proposals,
            state.anchors,
            state.drafts,
            state.positions,
            following,
        )
        return plain_torch.seam(here.logits, here.vocab, *tables, rows=rows)

    return Work(call, [oracle.accepted(data)[:3], oracle.next_window(data)[1]], here.logits.nbytes)
