"""Every family of the Qwens' code with its own MTP head on the model executor: tokens equal plain
decoding alone, and transformers'.

(The hybrid itself: test_model.py. Gemma: test_gemma_model.py.)"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3ForCausalLM,
)

from mtp.drafters import load_qwen_mtp
from mtp.drafters.qwen_mtp import QwenMtp
from mtp.policies import RotateGrow, StaticK
from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from tests.support.checkpoints import (
    LLAMA3_ROPE,
    NINE_HEADS,
    write_llama,
    write_qwen2,
    write_qwen3,
    write_qwen3_5,
    write_qwen3_5_moe,
)
from tests.support.small import (
    BUCKETS,
    CONTEXT,
    CPU,
    SLOTS,
    VOCAB,
    alone,
    decode,
    engine,
    requests,
    tokens,
)

FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "experts": (write_qwen3_5_moe, Qwen3_5MoeForCausalLM, {}),
    "two_layers": (write_qwen3_5, Qwen3_5ForCausalLM, {"mtp": 2}),
    "qwen3": (write_qwen3, Qwen3ForCausalLM, {"mtp": 3}),
    "qwen2": (write_qwen2, Qwen2ForCausalLM, {}),
    "llama": (write_llama, LlamaForCausalLM, NINE_HEADS | {"rope_parameters": LLAMA3_ROPE}),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, type[PreTrainedModel]]:
    write, reference, config = FAMILIES[request.param]
    return write(
        tmp_path_factory.mktemp(request.param), **({"seed": 6, "vocab_size": VOCAB} | config)
    ), reference


def load(folder: Path, dtype: torch.dtype) -> tuple[DecoderTarget, QwenMtp]:
    target = load_target(folder, slots=SLOTS, context=CONTEXT, dtype=dtype, device=CPU)
    return target, load_qwen_mtp(folder, target, buckets=BUCKETS)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16],
    ids=["fp32", "bf16"],
)
def test_tokens_equal_plain_decoding_alone_eager_and_replayed(
    family: tuple[Path, Any], dtype: torch.dtype
):
    """A replay also proves that nothing in target and drafter reads the host or has shapes that
    depend on data."""
    target, drafter = load(family[0], dtype)
    todo = requests(16)
    reference, accepted = alone(target, todo), 0
    for policy, slots, key in (
        (RotateGrow(), 4, None),
        (RotateGrow(), 3, "rows"),
        (StaticK(1), 4, "sorted"),
    ):
        run = engine(target, drafter, policy, slots=slots, key=key)
        assert tokens(run, todo) == reference, (policy, slots, key)
        accepted += sum(round_.accepted for round_ in run.rounds)
    assert accepted > 2  # the comparison is empty where nothing is ever accepted


@pytest.mark.parametrize("new", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_tokens_equal_transformers_generate_alone_and_in_company(
    family: tuple[Path, Any], new: int
):
    folder, reference = family
    model = reference.from_pretrained(folder).eval()
    target, drafter = load(folder, torch.float32)
    todo = requests(new)[1:4]
    expected = {}
    for request in todo:
        ids = torch.tensor([request.prompt])
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )
        expected[request.id] = tuple(out[0, ids.shape[1] :].tolist())
    assert tokens(engine(target, drafter, RotateGrow()), todo) == expected
    assert alone(target, todo) == expected


def test_a07_every_stop_id_of_every_file_ends_a_request(family: tuple[Path, Any], tmp_path: Path):
    """The text up to the first of them, whichever file names it, as plain decoding without stops
    goes on."""
    target, _ = load(family[0], torch.float32)
    todo = requests(20)[1:3]
    texts = alone(target, todo)
    stops = {text[9] for text in texts.values()}  # a token of each text
    folder = Path(shutil.copytree(family[0], tmp_path / "copy"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": max(stops)}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": sorted(stops)}))
    target, drafter = load(folder, torch.float32)
    assert target.limits.stop_ids == stops
    for name, done in decode(
        engine(target, drafter, RotateGrow()), requests(20, ignore_stop=False)[1:3]
    ).items():
        end = min(i for i, token in enumerate(texts[name]) if token in stops)
        assert (done.tokens, done.finish) == (texts[name][: end + 1], "stop")
