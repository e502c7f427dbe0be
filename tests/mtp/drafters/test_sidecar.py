"""A drafter in a folder of its own, with a draft vocabulary: what it drafts, and which target it is
refused for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from mtp.buckets import Buckets
from mtp.drafters import check_qwen_mtp, load_qwen_mtp
from mtp.drafters.qwen_mtp import QwenMtp
from mtp.drafters.sidecar import about_target
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from mtp.targets.loading.checkpoint import Checkpoint
from tests.support.checkpoints import write_llama, write_qwen3

BUCKETS = Buckets((8,))


def sidecar_of(target: Path, folder: Path, **config: object) -> Path:
    """The target's own head as a sidecar: its folder holds the same tensors, its config says
    more."""
    shutil.copytree(target, folder)
    file = folder / "config.json"
    file.write_text(
        json.dumps(
            json.loads(file.read_text()) | {"mtp_target": about_target(Checkpoint(target))} | config
        )
    )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_llama(tmp_path_factory.mktemp("target"))


def drafts_of(
    folder: Path, sidecar: Path
) -> tuple[list[tuple[list[int], tuple[float, ...]]], QwenMtp]:
    """What is held along a short text: three chained drafts and their confidence, as often as there
    are."""
    target = load_target(folder, slots=1, context=64, dtype="fp32")
    drafter = load_qwen_mtp(sidecar, target, buckets=BUCKETS)
    executor = ModelExecutor(
        target,
        drafter,
        slots=1,
        largest_group=4,
        depth=3,
        buckets=BUCKETS,
        device=torch.device("cpu"),
    )
    engine = Engine(executor, slots=1, policy=RotateGrow())
    engine.submit(Request("a", (5, 7, 11, 13), 8, ignore_stop=True))
    found = []
    while engine.step():
        held = executor.buffers.drafts[0, :3].tolist()
        found += [
            (held, stream.confidence) for stream in engine.streams.values() if stream.held == 3
        ]
    return found, drafter


def test_a_vocabulary_of_every_token_changes_nothing_and_a_smaller_one_drafts_only_its_own(
    folder, tmp_path
):
    whole = sidecar_of(folder, tmp_path / "whole", draft_vocab=list(range(300)))
    some = sidecar_of(folder, tmp_path / "some", draft_vocab=list(range(3, 300, 10)))
    plain = sidecar_of(folder, tmp_path / "plain")
    expected, _ = drafts_of(folder, plain)
    assert drafts_of(folder, whole)[0] == expected
    found, drafter = drafts_of(folder, some)
    assert len(drafter.head) == 30
    torch.testing.assert_close(drafter.head.weight, drafter.target.head.weight[3::10])
    assert found
    assert {token for tokens, _ in found for token in tokens} <= set(range(3, 300, 10))
    assert all(0 < one <= 1 for _, confidence in found for one in confidence)


def test_texts_do_not_depend_on_the_draft_vocabulary(folder, tmp_path):
    some = sidecar_of(folder, tmp_path / "some", draft_vocab=list(range(0, 300, 3)))
    target = load_target(folder, slots=2, context=64, dtype="fp32")
    texts = {}
    for name, drafter, policy in (
        ("plain", None, StaticK(0)),
        ("some", load_qwen_mtp(some, target, buckets=BUCKETS), RotateGrow()),
    ):
        executor = ModelExecutor(
            target,
            drafter,
            slots=2,
            largest_group=4,
            depth=policy.depth,
            buckets=BUCKETS,
            device=torch.device("cpu"),
        )
        engine = Engine(executor, slots=2, policy=policy)
        for i in range(3):
            engine.submit(Request(str(i), (5, 7 + i, 11), 24, ignore_stop=True))
        texts[name] = {one.id: one.tokens for one in engine.run()}
    assert texts["plain"] == texts["some"]


@pytest.mark.parametrize("ids", [[], [3, 2], [1, 1], [0, 300], [-1, 2], [0.5], ["1"], [True], 7])
def test_ids_that_are_no_ascending_list_of_the_targets_are_refused(folder, tmp_path, ids):
    wrong = sidecar_of(folder, tmp_path / "wrong", draft_vocab=ids)
    with pytest.raises(
        ValueError, match=r"draft_vocab is no ascending list of token ids from 0 to 299"
    ):
        check_qwen_mtp(wrong, Checkpoint(folder))


def test_another_target_of_the_same_sizes_is_refused(folder, tmp_path):
    right = sidecar_of(folder, tmp_path / "sidecar")
    check_qwen_mtp(right, Checkpoint(folder))
    other = write_llama(tmp_path / "other", seed=1)
    with pytest.raises(
        ValueError, match=r"sidecar was trained with a target of other weights than .*other"
    ):
        check_qwen_mtp(right, Checkpoint(other))
    small = write_qwen3(tmp_path / "small", hidden_size=32)
    with pytest.raises(ValueError, match="hidden size 64"):
        check_qwen_mtp(right, Checkpoint(small))


def test_more_layers_than_drafts_are_refused_before_weights_are_read(folder, tmp_path):
    deep = sidecar_of(folder, tmp_path / "deep", num_mtp_layers=8)
    with pytest.raises(ValueError, match="deep: 8 MTP layers, supported: 1 to 7"):
        check_qwen_mtp(deep, Checkpoint(folder))
