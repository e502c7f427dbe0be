"""What came from files and folders and once changed a result in silence (N and F cases)."""

from __future__ import annotations

import json
import subprocess

import pytest
import torch
from hydra import compose, initialize_config_dir
from tokenizers import Tokenizer

from experiments import io
from experiments.assets import MODELS
from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.config.overrides import parse
from experiments.run import CONFIGS
from experiments.runs.reference import plain_tokens
from experiments.runs.setup import setup
from experiments.runs.spec import run_spec
from experiments.workloads.tokenizer import load_tokenizer

TOKENIZER = MODELS / "tiny_qwen" / "tokenizer.json"


@pytest.mark.parametrize("stored", ["truncation", "padding"])
def test_N01_what_a_tokenizer_file_stores_does_not_cut_or_pad_prompts(stored, tmp_path):
    long, short = "def f(x): return x + 1\n" * 20, "a b c"
    plain = Tokenizer.from_file(str(TOKENIZER))
    expected = [len(plain.encode(text).ids) for text in (long, short)]
    changed = Tokenizer.from_file(str(TOKENIZER))
    if stored == "truncation":
        changed.enable_truncation(max_length=16)
    else:
        changed.enable_padding(direction="left", length=400)
    file = tmp_path / "tokenizer.json"
    changed.save(str(file))
    assert [len(Tokenizer.from_file(str(file)).encode(text).ids) for text in (long, short)] != (
        expected
    )
    loaded = load_tokenizer(file)
    assert [len(loaded.encode(text).ids) for text in (long, short)] == expected


def test_N19_a_git_lfs_pointer_is_named_as_one(tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 133\n")
    with pytest.raises(ValueError, match=r"tokenizer\.json is a Git LFS pointer"):
        load_tokenizer(file)


@pytest.mark.parametrize("content", ["", "[]", '{"tokens": ["a"], "finish": "stop"}'])
def test_N06_a_broken_file_in_the_cache_of_references_is_computed_again(content, tmp_path, capfd):
    resolvers.register()
    threads = torch.get_num_threads()
    options = ["workload.requests=1", "max_new_tokens=6", "device=cpu", "drafter=none"]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        config = compose("run", overrides=[*options, "policy=static_0"])
    made = setup(run_spec(config), config)
    torch.set_num_threads(threads)
    first = plain_tokens(made, MODELS / "tiny_qwen", tmp_path)
    (file,) = (tmp_path / "plain").iterdir()
    whole = json.loads(file.read_text())
    file.write_text(content)
    assert plain_tokens(made, MODELS / "tiny_qwen", tmp_path) == first
    assert str(file) in capfd.readouterr().err
    assert json.loads(file.read_text()) == whole


@pytest.mark.parametrize("value", ["+8", "8_0", "[1,+2,4]"])
def test_F17_integers_are_written_in_digits(value):
    key = "sizes" if "[" in value else "grant.budget"
    with pytest.raises(BadInput, match=rf"{key} is .*expected an integer as written in digits"):
        parse([f"{key}={value}"])
    assert parse(["grant.budget=8", "tag='8_0'", "tag=a_1", "sizes=[1,2]", "+tag=x"])


def test_F09_an_untracked_file_is_no_other_version(tmp_path, monkeypatch):
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "a.py").write_text("1\n")
    git("add", "a.py")
    git("commit", "-m", "one")
    monkeypatch.setattr(io, "PROJECT", tmp_path)
    clean = io.git_commit.__wrapped__()
    (tmp_path / "notes.txt").write_text("mine\n")
    assert io.git_commit.__wrapped__() == clean
    (tmp_path / "a.py").write_text("2\n")
    assert io.git_commit.__wrapped__() == clean + "+"


@pytest.mark.parametrize("policy", ["adaptive", "survival_topk"])
@pytest.mark.parametrize("cost", ["linear", "staircase"])
def test_F14_in_a_run_the_drafts_of_a_look_up_cost_nothing(policy, cost):
    resolvers.register()

    def price(drafter):
        chosen = [f"policy={policy}", f"cost={cost}", f"drafter={drafter}"]
        with initialize_config_dir(CONFIGS, version_base="1.3"):
            planned = run_spec(compose("run", overrides=chosen)).policy.cost
        assert planned.window(8, 1, 0) > planned.window(1, 1, 0) > 0
        return planned.window(3, 1, 3) - planned.window(3, 1, 0)

    assert price("prompt_lookup") == 0
    assert price("qwen_mtp") > 0
