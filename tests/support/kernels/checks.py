"""Compiled kernels against their twins, in the emulator. `kernels` is the package under test:
this one, or one with a fault."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import triton_kernels as twins
from bench.inputs.mixers import MAKERS, AttentionData, ConvData, DeltaData, to
from bench.inputs.windows import WindowData, random_window
from tests.emulator.driver import emulated
from triton_kernels import (
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

KERNELS = SimpleNamespace(
    accept=accept,
    advance=advance,
    argmax=argmax,
    attention=attention,
    causal_conv=causal_conv,
    gated_delta=gated_delta,
    gated_delta_commit=gated_delta_commit,
    pack=pack,
    split_attention=split_attention,
)
STAGES = ("all", "accept", "plan")
# of a result, values of about 1
ATTENTION = {
    torch.float32: 4e-6,
    torch.float16: 2e-3,
    torch.bfloat16: 2e-2,
}
SUM = 2e-6  # of a sum in another order than the twin's, terms of about 1


def same(got: Any, want: Any) -> None:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(a, b), f"result {i} is {a.tolist()}, expected {b.tolist()}"


def check_argmax(data: WindowData, kernels: Any = KERNELS) -> None:
    arguments = data.argmax_arguments()
    bans = (arguments.get("banned"), arguments.get("banned_counts"))
    same(
        kernels.argmax._launch(data.logits, data.vocab, *bans), twins.row_argmax_torch(**arguments)
    )
    same(
        kernels.argmax._launch(data.logits, data.vocab, None, None),
        twins.row_argmax_torch(data.logits, vocab=data.vocab),
    )


def check_pack(data: WindowData, kernels: Any = KERNELS) -> None:
    arguments = data.pack_arguments()
    tables = [
        arguments[name] for name in ("anchors", "drafts", "positions", "group_rows", "bucket")
    ]
    same(kernels.pack._launch(*tables), twins.pack_window_torch(**arguments))


def check_accept(data: WindowData, kernels: Any = KERNELS) -> None:
    arguments = data.accept_arguments()
    inputs = [arguments[name] for name in accept.INPUTS]
    same(
        kernels.accept._launch(arguments["width"], *inputs), twins.accept_prefix_torch(**arguments)
    )


def check_advance(
    data: WindowData, kernels: Any = KERNELS, stages: tuple[str, ...] = STAGES
) -> None:
    for stage in stages:
        got, want = data.copy(), data.copy()
        options = data.advance_arguments(stage)
        given = kernels.advance.arguments_of(stage, got[0], window=got[1], **options)
        results = kernels.advance._launch(*given)
        twin = twins.advance_window_torch(stage, state=want[0], window=want[1], **options)
        same((*got[0], *got[1], *results), (*want[0], *want[1], *twin))


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(
        got,
        want,
        atol=SUM * want.nan_to_num().abs().max().clamp(min=1).item(),
        rtol=0,
        equal_nan=True,
    )


def check_gated_delta(data: DeltaData, kernels: Any = KERNELS) -> None:
    """Verify up to the order of its sums; commit bit for bit, of what this verify left; a row
    alone bit for bit as in a group."""
    verify, commit = kernels.gated_delta._launch, kernels.gated_delta_commit._launch
    twin, before = to(data, "cpu"), data.states.clone()
    out = verify(*data.verify_arguments(), deltas=data.deltas)
    close(out, gated_delta.gated_delta_verify_torch(*twin.verify_arguments(), deltas=twin.deltas))
    close(data.deltas, twin.deltas)
    same([data.states], [before])
    got, want = data.commit_arguments(), data.commit_arguments()
    commit(*got)
    gated_delta_commit.gated_delta_commit_torch(*want)
    same(got[:1], want[:1])
    rows = int(data.starts[-1])
    if rows and int(data.starts[1]) == rows:  # slot 0 alone: row by row
        states = data.states.clone()
        for row in range(rows):
            q, k, v, decay, beta = (x[row : row + 1] for x in data.verify_arguments()[:5])
            one = torch.ones_like(data.starts).index_fill_(0, torch.tensor([0]), 0)
            left = torch.empty_like(data.deltas[:1])
            same(
                verify(q, k, v, decay, beta, states, one, deltas=left),
                out[row : row + 1],
            )
            commit(states[None], k[None], left[None], decay[None], one, torch.ones_like(data.kept))


def check_causal_conv(data: ConvData, kernels: Any = KERNELS) -> None:
    rows, before = int(data.starts[-1]), data.states.clone()
    out = kernels.causal_conv._launch_verify(*data.verify_arguments())
    close(out[:rows], causal_conv.causal_conv_verify_torch(*data.verify_arguments())[:rows])
    same([data.states], [before])
    got, want = data.commit_arguments(), data.commit_arguments()
    kernels.causal_conv._launch_commit(*got)
    causal_conv.causal_conv_commit_torch(*want)
    same(got[:1], want[:1])


def check_attention(data: AttentionData, kernels: Any = KERNELS) -> None:
    """Up to the rounding of weights; the caches bit for bit; a row alone bit for bit as in its
    group."""
    got, want, one = to(data, "cpu"), to(data, "cpu"), to(data, "cpu")
    out = kernels.attention._launch(*got.tensors(), **data.options)
    twin = attention.window_attention_torch(*want.tensors(), **data.options)
    torch.testing.assert_close(
        out, twin, atol=ATTENTION[out.dtype], rtol=ATTENTION[out.dtype], equal_nan=True
    )
    same(
        [cache.nan_to_num(7.0) for cache in (got.keys, got.values)],
        [cache.nan_to_num(7.0) for cache in (want.keys, want.values)],
    )
    for slot, first, rows in data.groups():
        for row in range(first, first + rows):
            starts = (torch.arange(len(data.starts)) > slot).int()
            cut = (None if x is None else x[row : row + 1] for x in (one.q, one.k, one.v))
            alone = kernels.attention._launch(
                *cut,
                one.keys,
                one.values,
                data.positions[row : row + 1],
                starts,
                None,
                **data.options,
            )
            same([alone.nan_to_num(7.0)], [out[row : row + 1].nan_to_num(7.0)])


CHECKS: dict[str, Callable[..., None]] = {
    "argmax": check_argmax,
    "pack": check_pack,
    "accept": check_accept,
    "advance": check_advance,
}
CHECKS |= {
    "attention": check_attention,
    "gated_delta": check_gated_delta,
    "causal_conv": check_causal_conv,
}
CHECKS["advance all"] = partial(check_advance, stages=("all",))


def poisoned_empty(*args: Any, **options: Any) -> torch.Tensor:
    """`torch.empty` whose content cannot be mistaken for a result."""
    tensor = torch.zeros(*args, **options)
    return tensor.fill_(True if tensor.dtype == torch.bool else -77)


def check(name: str, arch: int, seeds: range, kernels: Any = KERNELS, **sizes: Any) -> None:
    """Seeds give the data and the order in which the programs run."""
    for seed in seeds:
        with emulated(arch, seed=seed), mock.patch("torch.empty", poisoned_empty):
            CHECKS[name](MAKERS.get(name, random_window)(seed, **sizes), kernels)
