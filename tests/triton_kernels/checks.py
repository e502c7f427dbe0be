"""Compiled kernels against their twins, in the emulator. `kernels` is the package under test: this one, or one with a fault."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import triton_kernels as twins
from bench.window_data import WindowData, random_window
from tests.emulator.driver import emulated
from triton_kernels import accept, advance, argmax, pack

KERNELS = SimpleNamespace(accept=accept, advance=advance, argmax=argmax, pack=pack)
STAGES = ("all", "accept", "plan")


def same(got: Any, want: Any) -> None:
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert torch.equal(a, b), f"result {i} is {a.tolist()}, expected {b.tolist()}"


def check_argmax(data: WindowData, kernels: Any = KERNELS) -> None:
    arguments = data.argmax_arguments()
    bans = (arguments.get("banned"), arguments.get("banned_counts"))
    same(kernels.argmax._launch(data.logits, data.vocab, *bans), twins.row_argmax_torch(**arguments))
    same(kernels.argmax._launch(data.logits, data.vocab, None, None), twins.row_argmax_torch(data.logits, vocab=data.vocab))


def check_pack(data: WindowData, kernels: Any = KERNELS) -> None:
    arguments = data.pack_arguments()
    tables = [arguments[name] for name in ("anchors", "drafts", "positions", "group_rows", "bucket")]
    same(kernels.pack._launch(*tables), twins.pack_window_torch(**arguments))


def check_accept(data: WindowData, kernels: Any = KERNELS) -> None:
    arguments = data.accept_arguments()
    inputs = [arguments[name] for name in accept.INPUTS]
    same(kernels.accept._launch(arguments["width"], *inputs), twins.accept_prefix_torch(**arguments))


def check_advance(data: WindowData, kernels: Any = KERNELS, stages: tuple[str, ...] = STAGES) -> None:
    for stage in stages:
        got, want = data.copy(), data.copy()
        options = data.advance_arguments(stage)
        given = {"logits": None, "proposals": None, "vocab": None, "sizes": (1, 2, 4)} | options
        arguments = kernels.advance._check(stage, got[0], window=got[1], dense=True, **given)
        results = kernels.advance._launch(*arguments)
        twin = twins.advance_window_torch(stage, state=want[0], window=want[1], **options)
        same((*got[0], *got[1], *results), (*want[0], *want[1], *twin))


CHECKS: dict[str, Callable[..., None]] = {"argmax": check_argmax, "pack": check_pack, "accept": check_accept, "advance": check_advance}
CHECKS["advance all"] = partial(check_advance, stages=("all",))


def poisoned_empty(*args: Any, **options: Any) -> torch.Tensor:
    """`torch.empty` whose content cannot be mistaken for a result."""
    tensor = torch.zeros(*args, **options)
    return tensor.fill_(True if tensor.dtype == torch.bool else -77)


def check(name: str, arch: int, seeds: range, kernels: Any = KERNELS, **sizes: Any) -> None:
    """Seeds give the data and the order in which the programs run."""
    for seed in seeds:
        with emulated(arch, seed=seed), mock.patch("torch.empty", poisoned_empty):
            CHECKS[name](random_window(seed, **sizes), kernels)
