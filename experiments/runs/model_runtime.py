"""A run on a model: target and drafter on a device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from hydra.utils import to_absolute_path
from omegaconf import DictConfig
from rich.console import Console

from experiments.runs.parity import Difference, Gap, Plain
from experiments.runs.reference import plain_executor, plain_tokens
from experiments.runs.runtime import engine_for
from experiments.runs.setup import setup
from experiments.runs.spec import RunSpec
from mtp.buckets import Buckets
from mtp.execution.bit_equal import bit_equal_row_counts
from mtp.execution.device_planned import DevicePlanningModel
from mtp.execution.model import ModelExecutor
from mtp.executor import Executor
from mtp.graphs.backends import graphs_for
from mtp.layouts.cache import GraphBackend
from mtp.policies import Policy, RotateGrow, StaticK
from mtp.request import Request

WARM_TOKENS = 8
# logits; bf16 has steps of 0.0625 from 8 to 16
TOLERANCE = {
    torch.float32: 1e-3,
    torch.bfloat16: 0.125,
}


class ModelRuntime:
    """See `Runtime`."""

    def __init__(self, spec: RunSpec, config: DictConfig) -> None:
        self.spec = spec
        self._made = setup(spec, config)
        self._target_folder = Path(to_absolute_path(str(config.target.path)))
        self._cache = Path(to_absolute_path(str(config.cache_dir)))
        cuda = self._made.device.type == "cuda"
        self.requests = self._made.requests
        self.evidence = "gpu" if cuda else "cpu"
        self.tolerance = TOLERANCE[self._made.target.dtype]
        self.device = (
            torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads"
        )

    def print_headline(self, console: Console) -> None:
        """The headline, and which row counts are bit-equal here; a bucket outside them cannot
        promise exact tokens."""
        settings, target = self.spec.settings, self._made.target
        console.print(
            f"{len(self.requests)} requests, {settings.slots} slots, {settings.rows} rows, buckets "
            f"{settings.buckets.describe()}, "
            f"{str(target.dtype).removeprefix('torch.')} on {self._made.device}"
        )
        if reason := getattr(target, "dtype_reason", ""):
            console.print(reason)
        equal = self._equal_rows
        console.print(f"row counts with bit-equal products here: {', '.join(map(str, equal))}")
        if advice := self.advice():
            console.print(f"[yellow]tokens may differ from plain decoding{advice}[/yellow]")

    @cached_property
    def _equal_rows(self) -> tuple[int, ...]:
        settings = self.spec.settings
        most = max((settings.rows, *settings.buckets.sizes))
        return bit_equal_row_counts(self._made.target.linear_weights(), rows=most)

    def advice(self) -> str:
        """Buckets that hold, where the run's row counts are not bit-equal on this device."""
        settings, equal = self.spec.settings, self._equal_rows
        used = settings.buckets.sizes or range(2, settings.rows + 1)
        if set(used) <= set(equal):
            return ""
        holding = sorted({n for n in (4, 8) if n in equal and n < settings.rows} | {equal[-1]})
        said = Buckets(tuple(holding)).describe().replace(" ", "")
        return (
            f": products are bit-equal here for {', '.join(map(str, equal))} rows, "
            f"buckets={said} would hold"
        )

    def executor(self) -> ModelExecutor:
        settings, policy = self.spec.settings, self.spec.policy
        options: dict[str, Any] = {
            "slots": settings.slots,
            "rows": settings.rows,
            "largest_group": max(settings.sizes),
            "depth": policy.depth,
            "buckets": settings.buckets,
            "device": self._made.device,
            "reload_drafter": self._made.load_drafter,
        }
        if settings.plan == "host":
            return ModelExecutor(self._made.target, self._made.drafter, **options)
        assert isinstance(policy, (RotateGrow, StaticK))
        return DevicePlanningModel(self._made.target, self._made.drafter, policy=policy, **options)

    def plain_executor(self) -> ModelExecutor:
        return plain_executor(self._made, buckets=Buckets(()))

    def graphs(self, executor: Executor) -> GraphBackend:
        assert isinstance(executor, ModelExecutor)
        return graphs_for(self._made.device, executor.dry_run)

    def reference(self) -> dict[str, Plain]:
        return plain_tokens(self._made, self._target_folder, self._cache)

    def gap(self, reference: dict[str, Plain]) -> Gap:
        """The target's own logits at that place, its text up to there read as a prompt. Takes
        slot 0: after the run."""
        prompts = {request.id: request.prompt for request in self.requests}
        target = self._made.target

        def gap(difference: Difference) -> float:
            assert isinstance(difference.plain, int)
            assert isinstance(difference.run, int)
            text = [
                *prompts[difference.request],
                *reference[difference.request].tokens[: difference.index],
            ]
            target.clear(0)
            logits, _ = target.prefill(
                0, torch.tensor(text, dtype=torch.int32, device=target.device), 0
            )
            target.clear(0)
            return abs(float(logits[0, difference.plain]) - float(logits[0, difference.run]))

        return gap

    def warm(self, executor: Executor, policy: Policy | None = None) -> float:
        """A few tokens of every request: first calls pay for allocation and code paths."""
        began = time.perf_counter()
        first = self.requests[: self.spec.settings.slots]
        short = [
            Request(
                id=request.id, prompt=request.prompt, max_new_tokens=WARM_TOKENS, ignore_stop=True
            )
            for request in first
        ]
        engine_for(self.spec, executor, short, policy).run()
        return time.perf_counter() - began

    def decode(self, tokens: Sequence[int]) -> str:
        return (
            self._made.tokenizer.decode(list(tokens))
            if self._made.tokenizer
            else " ".join(map(str, tokens))
        )
