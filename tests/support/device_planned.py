"""Engines whose device plans, and their likes whose host does, on a tiny random checkpoint."""

from __future__ import annotations

import torch

from mtp.buckets import Buckets
from mtp.drafters import load_qwen_mtp
from mtp.drafters.prompt_lookup import PromptLookup
from mtp.engine import Engine
from mtp.execution.device_planned import DevicePlanningModel
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import CpuGraphs
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from tests.support.replay_drafter import ReplayDrafter

CPU = torch.device("cpu")
CONTEXT = 120
SLOTS = 5
EIGHT = Buckets((8,))
POLICIES = [RotateGrow(), StaticK(1), StaticK(3)]


def requests(count=SLOTS, new=30):
    """Different prompts and lengths; one ends at the context, one early, one may not stop before
    its minimum."""
    prompts = [tuple(range(5 + n, 9 + 4 * n)) for n in range(9)]
    made = [
        Request(f"r{n}", prompt, new + 3 * n, ignore_stop=n != 2, min_new_tokens=9 * (n == 2))
        for n, prompt in enumerate(prompts)
    ]
    made[1] = Request("r1", tuple(range(CONTEXT - 12, 0, -1)), 60, ignore_stop=True)
    made[3] = Request("r3", (3, 2, 4), 2, ignore_stop=True)
    return made[:count]


def run(executor, policy, *, slots, todo, rows=8, layout=None, **options):
    engine = Engine(
        executor, slots=slots, rows=rows, policy=policy, layout=layout, prefill_chunk=32, **options
    )
    for request in todo:
        engine.submit(request)
    engine.run()
    return engine


def host(target, drafter, policy, **options):
    rows = options.get("rows", 8)
    executor = ModelExecutor(
        target,
        drafter,
        slots=SLOTS,
        rows=rows,
        largest_group=4,
        depth=policy.depth,
        buckets=EIGHT,
        device=CPU,
    )
    return run(executor, policy, **options)


def planner(target, drafter, policy, rows=8):
    depth = policy.depth
    return DevicePlanningModel(
        target,
        drafter,
        policy=policy,
        slots=SLOTS,
        rows=rows,
        largest_group=4,
        depth=depth,
        buckets=EIGHT,
        device=CPU,
    )


def device(target, drafter, policy, *, captured=False, **options):
    executor = planner(target, drafter, policy, options.get("rows", 8))
    if captured:
        options["layout"] = Keyed("rows", LayoutCache(8, CpuGraphs(executor.dry_run)))
    return run(executor, policy, **options)


def windows(engine):
    return [(r.window, r.slot, r.request, r.rows, r.committed, r.finish) for r in engine.rounds]


def ends(engine):
    return {done.id: (done.tokens, done.finish) for done in engine.finished}


def drafter_of(kind, folder, target, texts):
    if kind == "replay":
        return ReplayDrafter(texts, slots=SLOTS, context=CONTEXT)
    if kind == "lookup":
        return PromptLookup(slots=SLOTS, context=CONTEXT, device=CPU)
    return load_qwen_mtp(folder, target, buckets=EIGHT) if kind == "mtp" else None
