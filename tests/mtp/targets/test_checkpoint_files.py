"""Stop ids and files of a checkpoint folder: all sources are read, and what is not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtp.drafters import check_qwen_mtp
from mtp.targets import check_target
from mtp.targets.loading.checkpoint import Checkpoint, unite_stop_ids
from mtp.targets.loading.weights import tensors_in
from tests.support.changed_checkpoints import (
    configure,
    load,
    refusal,
    shard,
)


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        (1, {1}),
        ([1, 106, 50], {1, 106, 50}),
        ([106, 106], {106}),
        (None, set()),
        (torch.tensor(106), {106}),
        (torch.tensor([1, 106]), {1, 106}),
    ],
)
def test_a07_stop_ids_in_any_form(source: Any, ids: set[int]):
    assert unite_stop_ids({"a": source}) == ids
    assert unite_stop_ids({"a": None, "b": 106, "c": source}) == ids | {106}


@pytest.mark.parametrize("named", ["106", ["1"], 1.5, -1, [True]])
def test_stop_ids_of_another_kind_are_refused(folder: Path, named: Any):
    """Not taken apart: "106" is not the ids 1, 0 and 6."""
    configure(folder, lambda config: config | {"eos_token_id": named}, "generation_config.json")
    assert f"eos_token_id is {named!r}, expected token ids" in refusal(folder)


def test_a07_config_generation_config_and_tokenizer_are_united(folder: Path):
    configure(folder, lambda config: config | {"eos_token_id": 1})
    configure(folder, lambda config: config | {"eos_token_id": [1, 50]}, "generation_config.json")
    assert Checkpoint(folder).stop_ids == {1, 50}
    configure(
        folder,
        lambda _: {
            "added_tokens": [{"id": 106, "content": "<end>"}],
            "model": {"vocab": {"</s>": 2}},
        },
        "tokenizer.json",
    )
    for token, number in (({"content": "<end>"}, 106), ("</s>", 2), ("<unknown>", None)):
        configure(folder, lambda _, token=token: {"eos_token": token}, "tokenizer_config.json")
        assert Checkpoint(folder).stop_ids == {1, 50} | ({number} if number else set())
    configure(
        folder,
        lambda _: {"eos_token": "<x>", "added_tokens_decoder": {"77": {"content": "<x>"}}},
        "tokenizer_config.json",
    )
    assert Checkpoint(folder).stop_ids == {1, 50, 77}
    assert Checkpoint(folder).tokenizer == folder / "tokenizer.json"


def change_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def test_F22_quantised_weights_are_refused_by_their_key(folder: Path):
    change_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})
    assert "quantization_config is set" in refusal(folder)


def test_F21_two_rotary_blocks_are_refused_by_name(folder: Path):
    change_config(
        folder,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )
    assert "rope_scaling and rope_parameters are both set" in refusal(folder)


@pytest.mark.parametrize("name", ["model-q4.gguf", "pytorch_model.bin"])
def test_F24_weights_that_are_not_read_are_named(folder: Path, name: str):
    (folder / "model.safetensors").rename(folder / name)
    assert f"no safetensors file but {name}, which are not read" in refusal(folder)


def test_N19_a_git_lfs_pointer_is_named_as_one(folder: Path):
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "cannot read model.safetensors: it is a Git LFS pointer" in refusal(folder)


def test_F23_a_head_that_the_index_leaves_out_is_named(folder: Path):
    tensors = load_file(folder / "model.safetensors")
    head = {name: tensor for name, tensor in tensors.items() if name.startswith("mtp.")}
    body = {name: tensor for name, tensor in tensors.items() if name not in head}
    save_file(body, folder / "model-00001-of-00001.safetensors", metadata={"format": "pt"})
    save_file(head, folder / "mtp.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").unlink()
    weight_map = dict.fromkeys(body, "model-00001-of-00001.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(ValueError, match=r"has no MTP head.*leaves out mtp\.safetensors"):
        check_qwen_mtp(folder, Checkpoint(folder))


@pytest.mark.parametrize("named", [320, 999_999, [5, 320]])
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("config.json", "eos_token_id"),
        ("config.json", "text_config.eos_token_id"),
        ("generation_config.json", "eos_token_id"),
    ],
)
def test_N20_a_stop_id_that_can_never_be_picked_is_refused(
    folder: Path, file: str, key: str, named: Any
):
    values = {"eos_token_id": named}
    if key.startswith("text_config"):
        configure(folder, lambda config: config | {"text_config": config | values}, file)
    else:
        configure(folder, lambda config: config | values, file)
    shown = str(named).replace("[", r"\[")
    expected = f"{file}: {key} is {shown}, expected token ids below 320"
    with pytest.raises(ValueError, match=expected):
        check_target(folder, context=64, dtype="stored")
    assert f"{file}: {key} is {named}, expected token ids below 320 (vocab_size)" in refusal(folder)


def test_N20_the_tokenizers_end_token_too(folder: Path):
    added = [{"id": 330, "content": "<end>", "special": True}]
    configure(folder, lambda _: {"added_tokens": added}, "tokenizer.json")
    configure(folder, lambda _: {"eos_token": "<end>"}, "tokenizer_config.json")
    assert "tokenizer_config.json: eos_token is 330, expected token ids below 320" in refusal(
        folder
    )


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_N19_a_pointer_in_place_of_any_file_is_named_as_one(folder: Path, name: str):
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert f"{name} is a Git LFS pointer, expected the file itself" in refusal(folder)


def test_N19_weights_that_trainers_read_too(tmp_path: Path):
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ValueError, match="it is a Git LFS pointer"):
        tensors_in(tmp_path / "model.safetensors")


def test_tensors_of_a_file_as_safetensors_reads_them(folder: Path):
    file = folder / "model.safetensors"
    ours, theirs = tensors_in(file), load_file(file)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("index", [True, False])
def test_weight_files_that_are_not_read_are_named_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], index: bool
):
    shard(folder, index=index)
    others = ["a.bin", "b.gguf", "c.npz", "d.pt", *(["e.safetensors"] if index else [])]
    for name in others:
        (folder / name).write_bytes(b"other weights")
    (folder / "README.md").write_text("")
    load(folder)
    Checkpoint(folder)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: checkpoint {folder}: left out, ")
    assert line.endswith(": " + ", ".join(others))
