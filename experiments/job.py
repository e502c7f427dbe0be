"""One run: plain reference, plain speed, the run itself, its figures and files."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hydra.utils import to_absolute_path
from omegaconf import DictConfig
from rich.console import Console

from experiments import results
from experiments.checks import BadInput
from experiments.reference import Parity, compare, plain_executor, plain_tokens
from experiments.screen import LiveLine, show
from experiments.setup import Setup, setup
from mtp.engine import Engine
from mtp.execution.bit_equal import bit_equal_row_counts
from mtp.execution.buckets import Buckets
from mtp.execution.model import ModelExecutor
from mtp.grants.figures import grant_figures, request_grants
from mtp.layouts import Layout
from mtp.metrics import summarise
from mtp.policies import Policy, StaticK
from mtp.request import Request

WARM_TOKENS = 8


class ParityError(RuntimeError):
    """A token differs from plain decoding although `parity=exact`."""


def run_job(config: DictConfig, folder: Path, run_id: str, console: Console) -> dict[str, Any]:
    """Runs a config and writes its files into `folder`; gives metrics.json. Raises BadInput, ParityError, or what failed."""
    made = setup(config)
    settings = made.plan.settings
    console.print(f"{len(made.requests)} requests, {settings.slots} slots, {settings.rows} rows, buckets {settings.buckets.describe()}, "
                  f"{str(made.target.dtype).removeprefix('torch.')} on {made.plan.device}")  # fmt: skip
    _probe(made, console)
    executor = ModelExecutor(
        made.target,
        made.drafter,
        slots=settings.slots,
        rows=settings.rows,
        largest_group=max(settings.sizes),
        depth=made.plan.policy.depth,
        buckets=settings.buckets,
        device=made.plan.device,
        reload_drafter=made.load_drafter,
    )
    _engine(made, executor, made.requests)  # refuses what cannot be served before anything is decoded
    reference = None
    if settings.parity != "off":
        with console.status("plain reference"):
            reference = plain_tokens(made, Path(to_absolute_path(str(config.target.path))), Path(to_absolute_path(str(config.cache_dir))))
    warmup_s = _warm(made, executor)
    plain = _plain_speed(made) if settings.plain else None
    layout = made.plan.layout.build(executor, made.plan.device)
    engine = _engine(made, executor, made.requests, layout=layout)
    with LiveLine(console, sum(request.max_new_tokens for request in made.requests), "decoding") as line:
        engine.on_tokens = line.committed
        began = time.perf_counter()
        finished = engine.run()
        wall_s = time.perf_counter() - began
    parity = compare(reference, finished) if reference is not None else Parity(0, False, None)
    metrics = _metrics(made, engine, run_id, plain, parity, warmup_s, wall_s)

    def decode(tokens: Any) -> str:
        return made.tokenizer.decode(list(tokens)) if made.tokenizer else " ".join(map(str, tokens))

    results.write_rounds(folder / "rounds.parquet", engine.rounds)
    results.write_tokens(folder / "tokens.jsonl", finished, decode)
    results.write_json(folder / "metrics.json", metrics)
    first = min(finished, key=lambda done: done.id)
    show(console, metrics, decode(first.tokens), first.id, str(folder))
    failed = [done for done in finished if done.finish == "error"]
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(finished)} requests failed, the first: {failed[0].id}: {failed[0].error}")
    if settings.parity == "exact" and not parity.exact:
        raise ParityError(f"tokens differ from plain decoding: {parity.first_difference}")
    return metrics


def _engine(
    made: Setup, executor: ModelExecutor, requests: list[Request], policy: Policy | None = None, layout: Layout | None = None
) -> Engine:
    settings = made.plan.settings
    engine = Engine(
        executor,
        slots=settings.slots,
        rows=settings.rows,
        policy=policy or made.plan.policy,
        grants=made.plan.grants if policy is None else None,  # the fastest plain decoding has none
        layout=layout,
        prefill_chunk=settings.prefill_chunk,
    )
    for request in requests:
        try:
            engine.submit(request)
        except ValueError as wrong:
            raise BadInput(str(wrong)) from wrong
    return engine


def _warm(made: Setup, executor: ModelExecutor, policy: Policy | None = None) -> float:
    """Seconds of a few tokens of every request: first calls pay for allocation and code paths."""
    began = time.perf_counter()
    first = made.requests[: made.plan.settings.slots]
    short = [Request(id=request.id, prompt=request.prompt, max_new_tokens=WARM_TOKENS, ignore_stop=True) for request in first]
    _engine(made, executor, short, policy).run()
    return time.perf_counter() - began


def _plain_speed(made: Setup) -> float | None:
    """Tokens per second of the fastest plain decoding: the same requests and slots, tight rows, no drafter."""
    executor = plain_executor(made, buckets=Buckets(()))
    _warm(made, executor, StaticK(0))
    engine = _engine(made, executor, made.requests, StaticK(0))
    engine.run()
    figures = summarise(engine.rounds, engine.finished, decode_s=_seconds(engine, "window"), prefill_s=_seconds(engine, "prefill"))
    return figures["tokens_per_s"]


def _probe(made: Setup, console: Console) -> None:
    """Which row counts are bit-equal here; a bucket outside them cannot promise exact tokens."""
    settings = made.plan.settings
    equal = bit_equal_row_counts(made.target.linear_weights(), rows=max((settings.rows, *settings.buckets.sizes)))
    console.print(f"row counts with bit-equal products here: {', '.join(map(str, equal))}")
    if not settings.buckets.tight and not set(settings.buckets.sizes) <= set(equal):
        console.print("[yellow]a bucket is not among them: tokens may differ from plain decoding[/yellow]")


def _seconds(engine: Engine, kind: str) -> float:
    return sum(step.end_s - step.start_s for step in engine.steps if step.kind == kind)


def _metrics(
    made: Setup, engine: Engine, run_id: str, plain: float | None, parity: Parity, warmup_s: float, wall_s: float
) -> dict[str, Any]:
    windows = [step for step in engine.steps if step.kind == "window"]
    decode_s = _seconds(engine, "window")
    verify, commit, capture = (sum(getattr(step.halves, part) for step in windows) for part in ("verify", "commit", "capture"))
    figures = summarise(
        engine.rounds,
        engine.finished,
        decode_s=decode_s,
        prefill_s=_seconds(engine, "prefill"),
        warmup_s=warmup_s,
        rows_padded=sum(step.padded for step in windows),
    )
    of_request = request_grants(engine.grants, engine.finished)
    figures["requests"] = [entry | of_request[entry["id"]] for entry in figures["requests"]]
    cuda = made.plan.device.type == "cuda"
    return {
        "run_id": run_id,
        "git_commit": results.git_commit(),
        "versions": results.versions(),
        "device": torch.cuda.get_device_name() if cuda else f"cpu, {torch.get_num_threads()} threads",
        "evidence": "gpu" if cuda else "cpu",
        **figures,
        "plain_tokens_per_s": plain,
        "end_to_end_tokens_per_s": sum(len(done.tokens) for done in engine.finished) / wall_s if wall_s else None,
        "split_s": {"verify": verify, "commit_and_draft": commit, "host": decode_s - verify - commit - capture, "capture": capture},
        "grants": grant_figures(engine.grants),
        "layouts": {"key": engine.layout.key, **asdict(engine.layout.stats())},
        "parity": {"checked": parity.checked, "exact": parity.exact, "first_difference": parity.first_difference},
    }
