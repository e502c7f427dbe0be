"""One run: plain reference, plain speed, the run itself, its figures and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from experiments.config.fingerprint import fingerprint_of
from experiments.io import git_commit, versions, write_json
from experiments.runs import results
from experiments.runs.console import show_run
from experiments.runs.parity import NOT_CHECKED, Parity, compare
from experiments.runs.progress import ProgressLine
from experiments.runs.runtime import Runtime, engine_for
from experiments.runs.spec import RunSpec, run_spec
from experiments.runs.tape_runtime import TapeRuntime
from experiments.runs.trace import FILE, trace_windows
from experiments.studies.study import run_study
from experiments.workloads.recorded import write_recording
from experiments.workloads.tape_set import TapeWorkload
from mtp.engine import Engine
from mtp.grants.ring import Ring
from mtp.grants.stats import grant_stats, request_grants
from mtp.layouts.stats import layout_stats
from mtp.metrics import rate, summarise
from mtp.policies import StaticK
from mtp.policies.record import Recording
from mtp.request import Finished


class ParityError(RuntimeError):
    """A token differs from plain decoding although `parity=exact`."""


@dataclass(frozen=True)
class Done:
    """A run whose files are all written."""

    metrics: dict[str, Any]  # metrics.json
    failure: Exception | None = None  # why it is no good nevertheless
    show: Callable[[], None] = lambda: None  # what a person sees of it


def run_job(config: DictConfig, folder: Path, run_id: str, console: Console) -> Done:
    """Runs a config and writes its files into `folder`. Raises BadInput, or what ended it."""
    spec = run_spec(config)
    if spec.study is not None:
        return Done(run_study(spec.study, folder, run_id, console))
    workload = spec.workload
    runtime = (
        TapeRuntime(spec, workload)
        if isinstance(workload, TapeWorkload)
        else _on_model(spec, config)
    )
    return run_on(
        runtime, folder, {"run_id": run_id, "fingerprint": fingerprint_of(config)}, console
    )


def _on_model(spec: RunSpec, config: DictConfig) -> Runtime:
    from experiments.runs.model_runtime import ModelRuntime  # needs torch, which tapes do without

    return ModelRuntime(spec, config)


def run_on(runtime: Runtime, folder: Path, identity: dict[str, str], console: Console) -> Done:
    """See `run_job`. identity: run_id and fingerprint."""
    spec, settings = runtime.spec, runtime.spec.settings
    runtime.print_headline(console)
    executor = runtime.executor()
    # refuses what cannot be served before anything is decoded
    engine_for(spec, executor, runtime.requests)
    reference = None
    if settings.parity != "off":
        with console.status("plain reference"):
            reference = runtime.reference()
    warmup_s = runtime.warm(executor)
    plain = _plain(runtime) if settings.plain else None
    layout = spec.layout.build(executor.now, lambda: runtime.graphs(executor))
    engine = engine_for(spec, executor, runtime.requests, layout=layout)
    with ProgressLine(
        console, engine, sum(request.max_new_tokens for request in runtime.requests), "decoding"
    ):
        began = executor.now()
        if spec.profile.windows:
            traced = trace_windows(engine, spec.profile, folder / FILE)
        finished = engine.run()
        wall_s = executor.now() - began
    parity = NOT_CHECKED
    if reference is not None:
        in_batch = plain.finished if plain else None
        parity = compare(
            reference,
            finished,
            plain=in_batch,
            gap=runtime.gap(reference),
            tolerance=runtime.tolerance,
        )
    metrics = _metrics(
        runtime, engine, identity, _decode_rate(plain) if plain else None, parity, warmup_s, wall_s
    )
    results.write_rounds(folder / "rounds.parquet", engine.rounds)
    results.write_steps(folder / "steps.parquet", engine.steps, engine.began_s)
    if isinstance(engine.grants, Ring):
        results.write_grants(folder / "grants.parquet", engine.grants.log)
    results.write_tokens(folder / "tokens.jsonl", finished, runtime.decode)
    write_json(folder / "metrics.json", metrics)
    failure = _failure(runtime, finished, parity)
    said = []
    if spec.profile.windows:
        said.append(
            f"trace: {traced} of {spec.profile.windows} windows, slower than the others, for "
            "ui.perfetto.dev"
        )
    if failure is None and isinstance(engine.learning, Recording):
        write_recording(folder, engine.learning, runtime.requests, executor.limits)
        said.append(f"recorded: replay it with workload=recorded workload.path={folder}")

    def show() -> None:
        first = min(finished, key=lambda done: done.id)
        show_run(console, metrics, runtime.decode(first.tokens), first.id, folder, said)

    return Done(metrics, failure, show)


def _failure(runtime: Runtime, finished: Sequence[Finished], parity: Parity) -> Exception | None:
    failed = [done for done in finished if done.finish == "error"]
    if failed:
        return RuntimeError(
            f"{len(failed)} of {len(finished)} requests failed, the first: {failed[0].id}: "
            f"{failed[0].error}"
        )
    if runtime.spec.settings.parity == "exact" and not parity.exact:
        return ParityError(
            f"tokens differ from plain decoding: {parity.first_difference}{runtime.advice()}"
        )
    return None


def _plain(runtime: Runtime) -> Engine:
    """The fastest plain decoding of the same requests in the same slots, run to its end."""
    executor = runtime.plain_executor()
    runtime.warm(executor, StaticK(0))
    engine = engine_for(runtime.spec, executor, runtime.requests, StaticK(0))
    engine.run()
    return engine


def _decode_rate(engine: Engine) -> float | None:
    """Tokens per second."""
    return rate(sum(entry.committed for entry in engine.rounds), _seconds(engine, "window"))


def _seconds(engine: Engine, kind: str) -> float:
    return sum(step.end_s - step.start_s for step in engine.steps if step.kind == kind)


def _metrics(
    runtime: Runtime,
    engine: Engine,
    identity: dict[str, str],
    plain: float | None,
    parity: Parity,
    warmup_s: float,
    wall_s: float,
) -> dict[str, Any]:
    windows = [step for step in engine.steps if step.kind == "window"]
    decode_s = _seconds(engine, "window")
    verify, commit, capture = (
        sum(getattr(step.phases, part) for step in windows)
        for part in ("verify", "commit", "capture")
    )
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
    return {
        **identity,
        "git_commit": git_commit(),
        "versions": versions(),
        "device": runtime.device,
        "evidence": runtime.evidence,
        **figures,
        "plain_tokens_per_s": plain,
        "end_to_end_tokens_per_s": sum(len(done.tokens) for done in engine.finished) / wall_s
        if wall_s
        else None,
        "split_s": {
            "verify": verify,
            "commit_and_draft": commit,
            "host": decode_s - verify - commit - capture,
            "capture": capture,
        },
        "grants": grant_stats(engine.grants),
        "policy": engine.learning.report() if engine.learning else None,
        "layouts": layout_stats(
            engine.layout.key,
            engine.layout.stats(),
            (step.phases for step in windows),
            decode_s=decode_s,
        ),
        "parity": parity.stats(),
    }
