"""From the target's logits to the next window's rows: picks, accept, pack, and all of it in three
launches, two, or one.

`wrapper`: what a user calls: the Triton kernel on a GPU, its twin behind one torch operation on a
CPU; `twin`: plain torch with the same results; `plain_torch`: what others do, and less
(`bench.reference.plain_torch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import triton_kernels as ops
from bench.inputs.recorded import fresh, recorded_window
from bench.inputs.windows import INT, WindowData, moved
from bench.ops.registry import Shape, Work, implementation
from bench.reference import oracle, plain_torch

SLOTS_ROWS = ((1, 8), (2, 8), (3, 8), (4, 8), (8, 8), (16, 16), (16, 32), (64, 64))
VOCABS = (32_000, 151_936, 262_144)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
NARROW = 2_048  # columns where the logits are not read


def _tables(wide: bool) -> Iterator[Shape]:
    for slots, rows in SLOTS_ROWS:
        yield {"slots": slots, "rows": rows}


def _logits(wide: bool) -> Iterator[Shape]:
    for dtype in DTYPES:
        for vocab in VOCABS if wide else VOCABS[:1]:
            for slots, rows in SLOTS_ROWS:
                yield {"slots": slots, "rows": rows, "vocab": vocab, "dtype": dtype}


def _picked(wide: bool) -> Iterator[Shape]:
    """Picks do not depend on slots: one shape for each number of rows."""
    for shape in _logits(wide):
        if shape["slots"] in (4, 16, 64):
            yield shape


def _data(shape: Shape) -> WindowData:
    return recorded_window(
        shape["slots"],
        shape["rows"],
        shape.get("vocab", NARROW),
        DTYPES[shape.get("dtype", "fp32")],
    )


def _bytes(*values: Any) -> int:
    return sum(
        value.nbytes if isinstance(value, Tensor) else _bytes(*value)
        for value in values
        if isinstance(value, (Tensor, tuple, list))
    )


# ---- one operation at a time


def _picks(call: Callable[..., Any]) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        data = _data(shape)
        logits = moved(data, device).logits
        expected = oracle.picks(data)
        return Work(
            lambda: call(logits, vocab=data.vocab), expected, logits.nbytes + 5 * shape["rows"]
        )

    return make


implementation("picks", "wrapper", shapes=_picked)(_picks(ops.row_argmax))
implementation("picks", "twin", shapes=_picked)(_picks(ops.row_argmax_torch))


@implementation("picks", "plain_torch", shapes=_picked)
def _(shape: Shape, device: torch.device) -> Work:
    data = _data(shape)
    logits = moved(data, device).logits
    return Work(
        lambda: plain_torch.picks(logits, data.vocab),
        oracle.picks(data)[0],
        logits.nbytes + 4 * shape["rows"],
    )


def _packing(data: WindowData) -> list[list[int]]:
    state = data.state
    return oracle.pack(
        state.anchors.tolist(),
        state.drafts.tolist(),
        state.positions.tolist(),
        data.window.starts.diff().tolist(),
        len(data.window.ids),
    )


def _pack(call: Callable[..., Any]) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        data = _data(shape)
        arguments = moved(data, device).pack_arguments()
        return Work(
            lambda: call(**arguments), _packing(data), _bytes(*arguments.values(), data.window)
        )

    return make


implementation("pack", "wrapper", shapes=_tables)(_pack(ops.pack_window))
implementation("pack", "twin", shapes=_tables)(_pack(ops.pack_window_torch))


@implementation("pack", "plain_torch", shapes=_tables)
def _(shape: Shape, device: torch.device) -> Work:
    data, real = _data(shape), int(_data(shape).window.starts[-1])
    arguments = moved(data, device).pack_arguments()
    return Work(
        lambda: plain_torch.pack(**arguments, rows=real),
        _packing(data),
        _bytes(*arguments.values(), data.window),
    )


def _accept(call: Callable[..., Any]) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        data = _data(shape)
        arguments = moved(data, device).accept_arguments()
        return Work(lambda: call(**arguments), oracle.accepted(data), _bytes(*arguments.values()))

    return make


implementation("accept", "wrapper", shapes=_tables)(_accept(ops.accept_prefix))
implementation("accept", "twin", shapes=_tables)(_accept(ops.accept_prefix_torch))


@implementation("accept", "plain_torch", shapes=_tables)
def _(shape: Shape, device: torch.device) -> Work:
    data = _data(shape)
    given = moved(data, device).accept_arguments()
    picks, ids, starts, anchors, width = (
        given[name] for name in ("picks", "ids", "starts", "anchors", "width")
    )
    work = lambda: plain_torch.accept(picks, ids, starts, anchors, width)  # noqa: E731
    return Work(work, oracle.accepted(data)[:3], _bytes(picks, ids, starts, anchors))


# ---- all of it


def _expected(data: WindowData) -> tuple[list[Any], Tensor]:
    """(kept, tokens, anchors) and the next window; the rows of its groups, by slot."""
    group_rows, window = oracle.next_window(data)
    return [oracle.accepted(data)[:3], window], torch.tensor(group_rows, dtype=INT)


def three(
    picks: Callable[..., Any],
    accept: Callable[..., Any],
    pack: Callable[..., Any],
    data_of: Callable[[Shape], WindowData] = _data,
) -> Callable[[Shape, torch.device], Work]:
    """Three operations and the moves of the tables between them; the plan is the host's and
    known before."""

    def make(shape: Shape, device: torch.device) -> Work:
        data = data_of(shape)
        expected, group_rows = _expected(data)
        here, group_rows = moved(data, device), group_rows.to(device)
        state, limits, window = here.state, here.limits, here.window

        def call() -> Any:
            chosen = picks(here.logits, vocab=here.vocab)
            tables = (
                state.anchors,
                state.positions,
                state.produced,
                limits.max_new,
                limits.context,
                limits.min_new,
            )
            kept, tokens, anchors, _ = accept(
                *chosen,
                window.ids,
                window.starts,
                *tables,
                limits.stop_ids,
                limits.stop_counts,
                width=state.drafts.shape[1] + 1,
            )
            drafts = plain_torch.following_drafts(window, kept, state.drafts, here.proposals)
            return (kept, tokens, anchors), pack(
                anchors, drafts, state.positions + kept, group_rows, bucket=shape["rows"]
            )

        return Work(call, expected, _bytes(here.logits, state, limits, window, here.proposals))

    return make


implementation("seam", "separate", shapes=_logits)(
    three(ops.row_argmax, ops.accept_prefix, ops.pack_window)
)
implementation("seam", "twins", shapes=_logits)(
    three(ops.row_argmax_torch, ops.accept_prefix_torch, ops.pack_window_torch)
)


@implementation("seam", "plain_torch", shapes=_logits)
def _(shape: Shape, device: torch.device) -> Work:
    data = _data(shape)
    expected, group_rows = _expected(data)
    here, real, group_rows = moved(data, device), int(group_rows.sum()), group_rows.to(device)
    tables = (here.state.anchors, here.state.drafts, here.state.positions)

    def call() -> Any:
        inputs = (here.logits, here.vocab, here.window, here.proposals)
        return plain_torch.seam(*inputs, *tables, group_rows, rows=real)

    return Work(call, expected, _bytes(here.logits, here.window, here.proposals, tables))


def advanced(
    *stages: str, data_of: Callable[[Shape], WindowData] = _data
) -> Callable[[Shape, torch.device], Work]:
    """In place, with the plan on the device: window after window, each as full as the first."""

    def make(shape: Shape, device: torch.device) -> Work:
        data = data_of(shape)
        here = moved(fresh(data), device)
        given = [(stage, here.advance_arguments(stage)) for stage in stages]

        def call() -> Any:
            return [
                ops.advance_window(stage, here.state, window=here.window, **arguments)  # type: ignore[arg-type]
                for stage, arguments in given
            ]

        def read(out: Any) -> Any:
            result = out[0].result
            return [
                [result[1].tolist(), result[3:].T.tolist(), here.state.anchors.tolist()],
                [table.tolist() for table in here.window],
            ]

        return Work(
            call,
            _expected(data)[0],
            _bytes(here.logits, here.state, here.limits, here.window, here.proposals),
            read=read,
        )

    return make


implementation("seam", "staged", shapes=_logits)(advanced("accept", "plan"))
implementation("seam", "fused", shapes=_logits)(advanced("all"))
