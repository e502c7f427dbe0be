"""No policy changes a token of a real run: every one that ships, on a small checkpoint, against
plain decoding alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from experiments.config import resolvers
from experiments.run import CONFIGS
from experiments.runs.spec import run_spec
from mtp.buckets import Buckets
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import StaticK
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.replay_drafter import ReplayDrafter

CPU, EIGHT, CONTEXT, SLOTS = torch.device("cpu"), Buckets((8,)), 160, 4
ON_TAPES_ONLY = {"oracle_p", "hindsight", "own"}
FILES = (Path(CONFIGS) / "policy").glob("[!_]*.yaml")
NAMES = sorted({file.stem for file in FILES} - ON_TAPES_ONLY)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return load_target(
        write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=8),
        slots=SLOTS,
        context=CONTEXT,
        dtype="fp32",
        device=CPU,
    )


def requests():
    return [
        Request(f"r{n}", tuple(range(5 + n, 9 + 3 * n)), 44 + 3 * n, ignore_stop=True)
        for n in range(6)
    ]


def decode(target, drafter, policy, slots=SLOTS):
    executor = ModelExecutor(
        target, drafter, slots=SLOTS, largest_group=4, depth=policy.depth, buckets=EIGHT, device=CPU
    )
    engine = Engine(executor, slots=slots, policy=policy)
    for request in requests():
        engine.submit(request)
    return {done.id: done.prompt + done.tokens for done in engine.run()}, engine


@pytest.fixture(scope="module")
def plain(target):
    return decode(target, None, StaticK(0), slots=1)[0]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_equal_plain_decoding(target, plain, name):
    resolvers.register()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        policy = run_spec(compose("run", overrides=[f"policy={name}"])).policy
    drafter = ReplayDrafter(plain.values(), slots=SLOTS, context=CONTEXT)
    texts, engine = decode(target, drafter if policy.depth else None, policy)
    assert texts == plain
    if name not in ("record", "static_0"):
        assert sum(round_.accepted for round_ in engine.rounds) > 20
