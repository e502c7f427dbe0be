"""Every tensor is accounted for; every refusal is one line that names what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.changed_checkpoints import (
    configure,
    load,
    refusal,
    renamed,
    shard,
    some_logits,
)
from tests.support.checkpoints import (
    LLAMA3_ROPE,
    rewrite,
    write_qwen3,
    write_qwen3_5_moe,
)


def test_a_missing_path_a_missing_config_and_no_tensors(tmp_path: Path, folder: Path):
    assert refusal(tmp_path / "nowhere").endswith("nowhere: no such folder")
    (folder / "model.safetensors").unlink()
    assert "no safetensors file" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "config.json is not JSON" in refusal(folder)
    (folder / "config.json").unlink()
    assert "no config.json" in refusal(folder)


def test_a_broken_file_is_named(folder: Path):
    (folder / "model.safetensors").write_bytes(b"not a safetensors file")
    assert "cannot read model.safetensors" in refusal(folder)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "phi3"}, "model_type is 'phi3', supported: "),
        ({"model_type": "qwen3_next"}, "model_type is 'qwen3_next'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type is 'yarn'"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": None}},
            "factor is None, expected a positive number (rope_type linear)",
        ),
        (
            {"rope_parameters": LLAMA3_ROPE | {"high_freq_factor": 1.0}},
            "high_freq_factor is 1.0, expected more than low_freq_factor (1.0)",
        ),
        ({"mlp_bias": True}, "mlp_bias is True, supported: False"),
        ({"dual_chunk_attention_config": {}}, "dual_chunk_attention_config is {}, supported: None"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types is"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types is"),
        ({"hidden_size": None}, "hidden_size is None"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 key heads evenly"),
    ],
)
def test_other_architectures_and_settings_are_refused(
    folder: Path, change: dict[str, Any], named: str
):
    configure(folder, lambda config: config | change)
    assert named in refusal(folder)


def test_what_is_asked_for_must_fit(folder: Path):
    assert "context is 40000, expected 1 to 32768" in refusal(folder, context=40_000)
    assert "slots is 0" in refusal(folder, slots=0)
    assert "dtype is torch.float16" in refusal(folder, dtype=torch.float16)


NORM = "model.layers.1.input_layernorm.weight"


def test_missing_misshaped_and_unknown_tensors_are_all_named(folder: Path):
    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        tensors["model.norm.weight"] = torch.zeros(7)
        return renamed(NORM, "model.layers.1.pre_norm.weight")(tensors)

    rewrite(folder, change)
    message = refusal(folder)
    assert f"missing {NORM}" in message
    assert "mis-shaped model.norm.weight [7] (expected [64])" in message
    assert "unknown model.layers.1.pre_norm.weight" in message


@pytest.mark.parametrize("index", [True, False])
def test_shards_give_the_same_model(original: Path, folder: Path, index: bool):
    shard(folder, index=index)
    assert torch.equal(some_logits(load(folder)), some_logits(load(original)))


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("name", [NORM, "mtp.fc.weight"])
def test_a_tensor_in_two_shards_is_refused(folder: Path, index: bool, name: str):
    shard(folder, index=index, doubled=name)
    assert f"doubled {name} (in a.safetensors and b.safetensors)" in refusal(folder)


def test_a_listed_shard_that_is_not_there(folder: Path):
    shard(folder, index=True)
    (folder / "b.safetensors").unlink()
    assert "cannot read b.safetensors" in refusal(folder)


def test_the_text_part_of_a_multimodal_checkpoint(original: Path, folder: Path):
    """Nested config, prefixed names, a vision tower that is not looked at; the outer config owns
    the head."""

    def nest(config: dict[str, Any]) -> dict[str, Any]:
        text = config | {
            "model_type": "qwen3_5_text",
            "tie_word_embeddings": True,
            "eos_token_id": 5,
        }
        return {
            "model_type": "qwen3_5",
            "text_config": text,
            "tie_word_embeddings": False,
            "eos_token_id": [9],
        }

    def prefix(tensors: dict[str, Any]) -> dict[str, Any]:
        moved = {
            name.replace("model.", "model.language_model.", 1) if name[:6] == "model." else name: t
            for name, t in tensors.items()
        }
        return moved | {"model.visual.patch_embed.weight": torch.zeros(3)}

    configure(folder, nest)
    rewrite(folder, prefix)
    target = load(folder)
    assert torch.equal(some_logits(target), some_logits(load(original)))
    assert target.limits.stop_ids == {5, 9}
    rewrite(folder, lambda tensors: tensors | {NORM: torch.zeros(64)})
    assert f"doubled {NORM}" in refusal(folder)


def test_parts_of_another_kind_are_refused(folder: Path):
    configure(
        folder, lambda _: {"weight_map": ["model.safetensors"]}, "model.safetensors.index.json"
    )
    assert "weight_map is ['model.safetensors'], expected an object" in refusal(folder)
    configure(folder, lambda config: config | {"text_config": "abc"})
    assert "text_config is 'abc', expected an object" in refusal(folder)


@pytest.mark.parametrize("raw", [-0.033, 0.967, 1.033])
def test_m01_iv_norms_are_an_offset_from_one_whatever_their_values(folder: Path, raw: float):
    """Two checkpoints of which one only looks as if its norms were whole weights: both are read
    alike."""

    def change(tensors: dict[str, Any]) -> dict[str, Any]:
        return {
            name: torch.full_like(tensor, raw) if name.endswith("norm.weight") else tensor
            for name, tensor in tensors.items()
        }

    rewrite(folder, change)
    target = load(folder)
    norms = [
        target.norm,
        target.blocks[0].before_mixer,
        target.blocks[0].before_mlp,
        target.blocks[3].mixer.norm,
    ]
    assert all(torch.equal(norm.weight, torch.full_like(norm.weight, 1 + raw)) for norm in norms)
    gated = target.blocks[0].mixer.norm_weight  # type: ignore[attr-defined]
    # the gated-delta layers' own norm is the exception
    assert torch.equal(gated, torch.full_like(gated, raw))


def test_dense_norms_are_whole_weights(tmp_path: Path):
    target = load(write_qwen3(tmp_path))
    stored = load_file(tmp_path / "model.safetensors")["model.norm.weight"]
    assert torch.equal(target.norm.weight, stored)


def test_the_gates_parameters_stay_exact_in_bf16(folder: Path):
    stored = load_file(folder / "model.safetensors")["model.layers.0.linear_attn.dt_bias"]
    mixer = load(folder, dtype=torch.bfloat16).blocks[0].mixer
    assert torch.equal(mixer.bias, stored.double())  # type: ignore[attr-defined]


def test_files_that_the_index_does_not_list_are_not_read(original: Path, folder: Path):
    shard(folder, index=True)
    (folder / "c.safetensors").write_bytes(b"of something else")
    assert torch.equal(some_logits(load(folder)), some_logits(load(original)))


@pytest.mark.parametrize(
    ("tokenizer", "highest"),
    [
        ({"model": {"vocab": {"a": 0, "b": 320}}}, 320),
        ({"model": {"vocab": [["a", 0.0]] * 400}}, 399),
        (
            {
                "model": {"vocab": {"a": 0}},
                "added_tokens": [{"id": 320, "content": "<b>", "special": False}],
            },
            320,
        ),
        (
            {
                "model": {"vocab": {"a": 319}},
                "added_tokens": [{"id": 320, "content": "<image>", "special": True}],
            },
            None,
        ),
    ],
)
def test_a_tokenizer_that_is_larger_than_the_embedding(
    folder: Path, tokenizer: dict[str, Any], highest: int | None
):
    """But for special tokens of other kinds of input, which a text model's embedding may lack."""
    configure(folder, lambda _: tokenizer, "tokenizer.json")
    if highest is None:
        load(folder)
    else:
        assert f"its tokenizer has ids up to {highest}, but its embedding has 320 rows" in refusal(
            folder
        )


def test_experts_in_one_tensor_or_one_by_one_are_the_same_model(tmp_path: Path):
    """transformers writes a target's one by one; published files may hold them fused, as the test's
    MTP head does."""
    one_by_one = write_qwen3_5_moe(tmp_path / "one")
    folder = Path(shutil.copytree(one_by_one, tmp_path / "fused"))

    def fuse(tensors: dict[str, Any]) -> dict[str, Any]:
        fused = {
            name: tensor
            for name, tensor in tensors.items()
            if ".mlp.experts." not in name or name.startswith("mtp.")
        }
        for i in range(4):
            at = f"model.layers.{i}.mlp.experts."
            both = [
                torch.cat([tensors[f"{at}{e}.{part}_proj.weight"] for part in ("gate", "up")])
                for e in range(6)
            ]
            fused |= {at + "gate_up_proj": torch.stack(both)}
            fused |= {
                at + "down_proj": torch.stack(
                    [tensors[f"{at}{e}.down_proj.weight"] for e in range(6)]
                )
            }
        return fused

    rewrite(folder, fuse)
    assert torch.equal(some_logits(load(folder)), some_logits(load(one_by_one)))
    rewrite(
        folder,
        lambda tensors: {
            n: t.mT.contiguous() if n.endswith("gate_up_proj") else t for n, t in tensors.items()
        },
    )
    assert (
        "mis-shaped model.layers.0.mlp.experts.gate_up_proj [6, 64, 80] (expected [6, 80, 64])"
        in refusal(folder)
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_experts_per_tok": 7}, "num_experts_per_tok is 7, expected at most num_experts (6)"),
        (
            {"moe_intermediate_size": None},
            "moe_intermediate_size is None, expected a positive integer",
        ),
        ({"num_experts": 5}, "unknown model.layers.0.mlp.experts.5.down_proj.weight"),
    ],
)
def test_experts_that_do_not_fit_their_config(tmp_path: Path, change: dict[str, Any], named: str):
    folder = write_qwen3_5_moe(tmp_path)
    configure(folder, lambda config: config | change)
    assert named in refusal(folder)
