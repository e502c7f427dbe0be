"""What Gemma folders say and hold, and what of it is followed, ignored or refused; bf16 beside
transformers' bf16."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, Gemma4ForCausalLM, Gemma4TextConfig

from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from mtp.targets.gemma.config import GemmaConfig
from mtp.targets.layers.rope import frequencies
from mtp.targets.loading.checkpoint import Checkpoint
from tests.support.checkpoints import rewrite
from tests.support.gemma_checkpoints import (
    EXPERTS,
    FULL,
    PER_LAYER,
    SLIDING,
    write_gemma3,
    write_gemma4,
)
from tests.support.teacher import Teacher


def load(folder: Path, dtype: torch.dtype = torch.float32, slots: int = 1) -> DecoderTarget:
    return load_target(folder, slots=slots, context=192, dtype=dtype)


# ---- config.json, in the forms that are published, as transformers reads it

PUBLISHED: dict[str, tuple[type, dict[str, Any]]] = {
    "gemma4, nothing said": (Gemma4TextConfig, {"model_type": "gemma4_text"}),
    "gemma4, as E2B": (
        Gemma4TextConfig,
        {
            "model_type": "gemma4_text",
            "num_hidden_layers": 35,
            "num_key_value_heads": 1,
            "layer_types": [SLIDING, SLIDING, SLIDING, SLIDING, FULL] * 7,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": True,
            "global_head_dim": 512,
            "num_global_key_value_heads": None,
            "rope_parameters": {
                FULL: {
                    "partial_rotary_factor": 0.25,
                    "rope_theta": 1_000_000.0,
                    "rope_type": "proportional",
                },
                SLIDING: {"rope_theta": 10_000.0, "rope_type": "default"},
            },
        },
    ),
    "gemma4, as 31B": (
        Gemma4TextConfig,
        {
            "model_type": "gemma4_text",
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 4,
            "hidden_size_per_layer_input": 0,
            "sliding_window": 1024,
            "use_bidirectional_attention": "vision",
        },
    ),
    "gemma4, all layers alike": (
        Gemma4TextConfig,
        {"model_type": "gemma4_text", "head_dim": 32, "per_layer_config": {}},
    ),
    "gemma4, the last layer slides": (
        Gemma4TextConfig,
        {"model_type": "gemma4_text", "num_hidden_layers": 4},
    ),
    "gemma3, nothing said": (Gemma3TextConfig, {"model_type": "gemma3_text"}),
    "gemma3, as 270M": (
        Gemma3TextConfig,
        {
            "model_type": "gemma3_text",
            "hidden_size": 640,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "num_hidden_layers": 18,
            "rope_local_base_freq": 10_000.0,
            "rope_theta": 1_000_000.0,
            "rope_scaling": None,
            "sliding_window": 512,
            "_sliding_window_pattern": 6,
        },
    ),
    "gemma3, as 4B": (
        Gemma3TextConfig,
        {
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_read_as_transformers_reads_it(name: str):
    kind, raw = PUBLISHED[name]
    reference = kind(**json.loads(json.dumps(raw)))
    ours = GemmaConfig.read(raw)
    assert ours.layer_types == tuple(reference.layer_types)
    assert (ours.vocab, ours.hidden, ours.max_positions) == (
        reference.vocab_size,
        reference.hidden_size,
        reference.max_position_embeddings,
    )
    assert ours.softcap is None
    for i, form in enumerate(ours.forms):
        layer = reference.per_layer_config[i] if kind is Gemma4TextConfig else reference
        assert (form.size, form.kv_heads, form.heads) == (
            layer.head_dim,
            layer.num_key_value_heads,
            reference.num_attention_heads,
        )
        assert form.sliding == (reference.sliding_window if form.layer_type == SLIDING else None)
    for layer_type, rope in ours.ropes.items():
        given = reference.rope_parameters[layer_type]
        assert (rope.theta, rope.kind) == (given["rope_theta"], given["rope_type"])
        assert rope.factor == given.get("factor", 1.0)
    if kind is Gemma4TextConfig:
        assert [form.shared for form in ours.forms] == [
            mode == "reuse" for mode in reference.kv_sharing_modes
        ]
        assert ours.per_layer == reference.hidden_size_per_layer_input


def test_only_the_first_quarter_of_a_full_layers_frequencies_turns():
    rope = GemmaConfig.read({"model_type": "gemma4_text"}).ropes[FULL]
    turns = frequencies(rope)
    assert len(turns) == 256
    assert (turns[:64] > 0).all()
    assert not turns[64:].any()
    torch.testing.assert_close(turns[1], torch.tensor(1_000_000.0 ** (-2 / 512)))


REFUSED4: dict[str, dict[str, Any]] = {
    "num_experts is None, expected a positive integer": {"enable_moe_block": True},
    "top_k_experts is 9, expected at most num_experts (8)": EXPERTS | {"top_k_experts": 9},
    "attention_bias is True": {"attention_bias": True},
    "use_bidirectional_attention is 'all', supported: None or 'vision'": {
        "use_bidirectional_attention": "all"
    },
    "hidden_activation is 'relu'": {"hidden_activation": "relu"},
    "layer_types is": {"layer_types": [SLIDING, FULL]},
    "num_kv_shared_layers is 3: of 4 layers, some would share what no layer has": {
        "num_kv_shared_layers": 3,
        "layer_types": [SLIDING] * 3 + [FULL],
    },
    "num_kv_shared_layers is 4 of as many layers, expected fewer": {"num_kv_shared_layers": 4},
    "num_kv_shared_layers is -1, expected an integer >= 0": {"num_kv_shared_layers": -1},
    "sliding_window is 0, expected a positive integer": {"sliding_window": 0},
    "per_layer_config of layer 3 sets sliding_window": {
        "per_layer_config": {"3": {"sliding_window": 4}}
    },
    "gives sliding_attention layers different heads": {"per_layer_config": {"0": {"head_dim": 24}}},
    "4 heads cannot share 3 key heads evenly": {"num_key_value_heads": 3},
    "vocab_size_per_layer_input is 100, expected at least 320": {
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 100,
    },
    "rope_type is 'yarn'": {
        "rope_parameters": {
            kind: {"rope_type": "yarn", "rope_theta": 9.0} for kind in (FULL, SLIDING)
        }
    },
    "rope_theta is None, expected a positive number": {
        "rope_parameters": {FULL: {"rope_type": "proportional"}, SLIDING: {"rope_theta": 9.0}}
    },
    "final_logit_softcapping is -1.0, expected a positive number": {
        "final_logit_softcapping": -1.0
    },
}
REFUSED3: dict[str, dict[str, Any]] = {
    "attn_logit_softcapping is 50.0, supported: None": {"attn_logit_softcapping": 50.0},
    "use_bidirectional_attention is True, supported: None or False": {
        "use_bidirectional_attention": True
    },
    "query_pre_attn_scalar is 0, expected a positive number": {"query_pre_attn_scalar": 0},
}


@pytest.fixture(scope="module")
def gemma4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gemma4(tmp_path_factory.mktemp("gemma4"))


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gemma3(tmp_path_factory.mktemp("gemma3"))


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    return lambda folder: Path(shutil.copytree(folder, tmp_path / "copy"))


def configure(
    folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], file: str = "config.json"
) -> None:
    path = folder / file
    path.write_text(json.dumps(change(json.loads(path.read_text()) if path.exists() else {})))


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("family", "message"), [*(("gemma4", m) for m in REFUSED4), *(("gemma3", m) for m in REFUSED3)]
)
def test_settings_that_are_not_followed_are_refused(
    request: pytest.FixtureRequest, copy: Any, family: str, message: str
):
    folder = copy(request.getfixturevalue(family))
    configure(
        folder, lambda config: config | (REFUSED4 if family == "gemma4" else REFUSED3)[message]
    )
    assert message in refusal(folder)


# ---- tensors


def test_m01_missing_renamed_and_misshaped_tensors_are_named(copy: Any, gemma4: Path):
    folder = copy(gemma4)
    rewrite(
        folder,
        lambda tensors: {
            n.replace("0.layer_scalar", "0.layer_scale"): t
            for n, t in tensors.items()
            if "3.mlp.up" not in n
        },
    )
    message = refusal(folder)
    assert "missing model.layers.0.layer_scalar, model.layers.3.mlp.up_proj.weight" in message
    assert "unknown model.layers.0.layer_scale" in message
    rewrite(folder, lambda tensors: tensors | {"model.norm.weight": torch.zeros(3)})
    assert "mis-shaped model.norm.weight [3] (expected [64])" in refusal(folder)


@pytest.mark.parametrize(("family", "offset"), [("gemma3", 1.0), ("gemma4", 0.0)])
def test_m01_iv_gemma_3_stores_norms_as_an_offset_from_one_and_gemma_4_does_not(
    request: pytest.FixtureRequest, copy: Any, family: str, offset: float
):
    folder = copy(request.getfixturevalue(family))
    rewrite(
        folder,
        lambda tensors: {
            n: torch.full_like(t, -0.033) if "norm" in n else t for n, t in tensors.items()
        },
    )
    target = load(folder)
    norms = [
        target.norm,
        *(
            norm
            for block in target.blocks
            for norm in (block.before_mixer, block.after_mlp, block.mixer.norm)
        ),
    ]
    assert all(
        torch.equal(norm.weight, torch.full_like(norm.weight, -0.033) + offset) for norm in norms
    )


def test_what_a_layer_that_shares_keys_and_values_stores_of_its_own_is_ignored(tmp_path: Path):
    folder = write_gemma4(tmp_path, **PER_LAYER)
    text = torch.arange(40) * 7 % 300
    expected = Teacher(load(folder), {0: text}, 1).prefill(0, 40)[0]
    layer = "model.layers.5.self_attn."
    more = {
        "k_proj.weight": torch.ones(32, 64),
        "v_proj.weight": torch.ones(32, 64),
        "k_norm.weight": torch.ones(32),
    }
    rewrite(
        folder, lambda tensors: tensors | {layer + name: tensor for name, tensor in more.items()}
    )
    assert torch.equal(Teacher(load(folder), {0: text}, 1).prefill(0, 40)[0], expected)


@pytest.mark.parametrize(
    ("family", "language", "others"),
    [("gemma4", "model.language_model.", "model."), ("gemma3", "language_model.model.", "")],
)
def test_a_multimodal_folder_is_its_language_model(
    request: pytest.FixtureRequest, copy: Any, family: str, language: str, others: str
):
    """In the layout of today, and in that of the Gemma 3 files that were published before it."""
    original = request.getfixturevalue(family)
    folder = copy(original)
    more = {
        f"{others}{part}.weight": torch.ones(2)
        for part in ("vision_tower.x", "embed_vision.x", "multi_modal_projector.x")
    }
    rewrite(
        folder,
        lambda tensors: more | {n.replace("model.", language, 1): t for n, t in tensors.items()},
    )
    configure(
        folder,
        lambda text: {
            "model_type": family,
            "text_config": text,
            "vision_config": {"hidden_size": 3},
            "eos_token_id": [1, 106],
        },
    )
    text = torch.arange(40) * 7 % 300
    logits = [Teacher(load(each), {0: text}, 1).prefill(0, 40)[0] for each in (original, folder)]
    assert torch.equal(*logits)
    assert load(folder).limits.stop_ids == {1, 106}


def test_a07_stop_ids_of_the_generation_config_join_those_of_the_config(copy: Any, gemma4: Path):
    folder = copy(gemma4)
    configure(folder, lambda config: config | {"eos_token_id": 1})
    configure(
        folder, lambda config: config | {"eos_token_id": [1, 106, 50]}, "generation_config.json"
    )
    assert Checkpoint(folder).stop_ids == {1, 106, 50}


# ---- windows that slide, and keys that are shared


def test_p11_a_sliding_layer_loses_nothing_to_a_rejected_row(tmp_path: Path):
    """window 4, n = 6, a group of 4 at 6..9 of which two rows are kept; the row at 8 then sees 5,
    6, 7, 8."""
    folder = write_gemma4(
        tmp_path, sliding_window=4, layer_types=[SLIDING, SLIDING, FULL], num_hidden_layers=3
    )
    text = torch.randint(0, 300, (16,), generator=torch.Generator().manual_seed(1))
    expected = Gemma4ForCausalLM.from_pretrained(folder).eval()(text[None]).logits[0]
    other = text.clone()
    other[8:] = 299 - other[8:]
    teacher = Teacher(load(folder), {0: other}, 1)
    teacher.prefill(0, 6)
    teacher.step({0: 4}, {0: 2})
    teacher.texts[0] = text
    rows = teacher.step({0: 2})
    assert [place for _, place in rows] == [8, 9]
    for (_, place), row in rows.items():
        torch.testing.assert_close(row.logits, expected[place], atol=1e-3, rtol=0)


def test_kv_is_the_last_layers_that_has_its_own(tmp_path: Path):
    target = load(write_gemma4(tmp_path, **PER_LAYER))
    assert len(target.caches) == 3  # sliding, sliding, full; the other three layers share
    assert target.kv(SLIDING)[0] is target.caches[1].keys
    assert target.kv(FULL)[1] is target.caches[2].values
    assert target.kv(FULL)[0].shape == (1, 1, 192, 32)
    with pytest.raises(
        ValueError,
        match=r"layer type is 'linear_attention', expected 'sliding_attention' or 'full_attention'",
    ):
        target.kv("linear_attention")
