"""A target and its drafter as the engine benchmark uses them: loading, prompts, decoding timed
without its prefill."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from tokenizers import Tokenizer

from bench.decoding.alternating import Tokens, differences
from experiments.assets import PROMPTS
from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.io import PROJECT
from experiments.runs.model_runtime import TOLERANCE
from experiments.runs.setup import Setup, setup
from experiments.runs.spec import run_spec
from experiments.runs.validate import validate
from mtp.buckets import Buckets
from mtp.drafters.protocol import Drafter
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import graphs_for
from mtp.layouts import Keyed, LayoutCache
from mtp.metrics import repetition
from mtp.policies import Policy, StaticK
from mtp.request import Request

CONFIGS = PROJECT / "configs"
TIGHT = Buckets(())
DIFFER = "differ"  # how a verdict begins where no ratio may be shown
Text = tuple[int, ...]
Generate = Callable[[int], Tokens]  # so many new tokens of every request


@dataclass(frozen=True)
class LoadedModel:
    """A target with its drafter."""

    name: str
    made: Setup  # loaded with one slot for each request
    folder: Path  # of the target's checkpoint
    drafter: Path | None  # its folder, where it has one

    @property
    def dtype(self) -> str:
        return {torch.float32: "fp32", torch.bfloat16: "bf16"}[self.made.target.dtype]


def load(
    target: str, drafter: str | None, *, slots: int, rows: int, more: Sequence[str] = ()
) -> LoadedModel:
    """target, drafter: a name in configs/ or a folder (drafter None: the target's own head);
    more: overrides of a run. Raises BadInput."""
    resolvers.register()
    chosen = [
        *_chosen("target", target, "checkpoint"),
        *(_chosen("drafter", drafter, "") if drafter else []),
    ]
    overrides = [
        "policy=rotate_grow",
        "buckets=tight",
        "workload=code",
        f"slots={slots}",
        f"rows={rows}",
        *chosen,
        *more,
    ]
    validate(overrides, str(CONFIGS), "run")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("run", overrides=overrides)
    made = setup(run_spec(config), config)
    own = config.drafter.get("path")
    return LoadedModel(
        Path(target).name,
        made,
        Path(str(config.target.path)).absolute(),
        Path(str(own)).absolute() if own else None,
    )


def _chosen(group: str, name: str, of_a_folder: str) -> list[str]:
    names = sorted(file.stem for file in (CONFIGS / group).glob("[!_]*.yaml"))
    if name in names:
        return [f"{group}={name}"]
    config = Path(name) / "config.json"
    if not config.is_file():
        raise BadInput(
            f"--{group} is {name}, expected a checkpoint folder or one of {', '.join(names)}"
        )
    if group == "drafter":
        kind = json.loads(config.read_text(encoding="utf-8")).get("model_type", "")
        of_a_folder = "gemma_assistant" if "assistant" in kind else "qwen_mtp"
    return [f"{group}={of_a_folder}", f"{group}.path={Path(name).absolute()}"]


def engine_decoding(
    made: Setup, drafter: Drafter | None, policy: Policy, texts: Sequence[Text], rows: int
) -> Generate:
    """Our engine, tight rows; on a GPU with graphs by row count. Stop ids are ignored."""
    executor = ModelExecutor(
        made.target,
        drafter,
        slots=made.target.slots,
        rows=rows,
        largest_group=max(policy.sizes),
        depth=policy.depth,
        buckets=TIGHT,
        device=made.device,
    )
    cuda = made.device.type == "cuda"
    layout = (
        Keyed("rows", LayoutCache(32, graphs_for(made.device, executor.dry_run))) if cuda else None
    )

    def generate(new: int) -> Tokens:
        engine = Engine(executor, slots=made.target.slots, rows=rows, policy=policy, layout=layout)
        for number, text in enumerate(texts):
            engine.submit(Request(str(number), text, new, ignore_stop=True))
        return {done.id: done.tokens for done in engine.run()}

    return generate


def decoding(generate: Generate, requests: int, new: int) -> Callable[[], tuple[float, Tokens]]:
    """Seconds per token of decoding alone, all requests at once: the time of `new` tokens each less
    that of a run as short as it can be.

    A short run has a token for each request: an engine that reads prompts and decodes in turns
    has then read them all."""

    def timed() -> tuple[float, Tokens]:
        began = time.perf_counter()
        generate(requests)
        started = time.perf_counter()
        tokens = generate(new)
        seconds = (time.perf_counter() - started) - (started - began)
        return seconds / (requests * (new - requests)), tokens

    return timed


def prompts(tokenizer: Tokenizer, kind: str, length: int) -> list[Text]:
    """The shipped prompts of a kind that have `length` tokens, cut to them."""
    lines = (PROMPTS / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    encoded = [tuple(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]
    return [ids[:length] for ids in encoded if len(ids) >= length]


def steady_prompts(made: Setup, kind: str, *, count: int, length: int, new: int) -> list[Text]:
    """The first `count` of them, or as many as there are, whose `new` greedy tokens repeat no
    16-gram: on looping text any drafter looks good. Decoded all slots at once."""
    steady: list[Text] = []
    assert made.tokenizer is not None
    candidates = prompts(made.tokenizer, kind, length)
    executor = ModelExecutor(
        made.target,
        None,
        slots=made.target.slots,
        largest_group=1,
        depth=0,
        buckets=TIGHT,
        device=made.device,
    )
    for begin in range(0, len(candidates), made.target.slots):
        engine = Engine(executor, slots=made.target.slots, policy=StaticK(0))
        texts = candidates[begin : begin + made.target.slots]
        for number, text in enumerate(texts):
            engine.submit(Request(str(number), text, new, ignore_stop=True))
        finished = sorted(engine.run(), key=lambda done: int(done.id))
        steady += [
            text
            for text, done in zip(texts, finished, strict=True)
            if done.finish == "length" and not repetition([done])
        ]
        if len(steady) >= count:
            break
    return steady[:count]


def verdict(made: Setup, texts: Sequence[Text], first: Tokens, second: Tokens) -> str:
    """Of what two ways gave: `exact`; `numerically equal`, where the target's own logits of both
    tokens are within the tolerance of its dtype at every request's first difference; or
    `differ`."""
    worst, found = 0.0, differences(first, second)
    for name, place in found:
        text, a, b = texts[int(name)], first[name], second[name]
        if place == min(len(a), len(b)):
            return f"{DIFFER} (request {name} has another length)"
        made.target.clear(0)
        with torch.inference_mode():
            logits, _ = made.target.prefill(
                0, torch.tensor([*text, *a[:place]], dtype=torch.int32, device=made.device), 0
            )
        made.target.clear(0)
        worst = max(worst, abs(float(logits[-1, a[place]]) - float(logits[-1, b[place]])))
    if not found:
        return "exact"
    kind = "numerically equal" if worst <= TOLERANCE[made.target.dtype] else DIFFER
    gap = f"largest gap {worst:.3f}"
    return f"{kind} ({len(found)} of {len(texts)} texts, {gap})"
