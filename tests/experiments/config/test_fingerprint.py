"""Fingerprints hold no code location: moving a class makes no finished job run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir

from experiments.config import fingerprint, resolvers
from experiments.config.fingerprint import fingerprint_of, shipped_names
from experiments.io import PROJECT

resolvers.register()


def of(*overrides: str) -> str:
    with initialize_config_dir(str(PROJECT / "configs"), version_base="1.3"):
        return fingerprint_of(compose("run", overrides=["workload=synthetic", *overrides]))


def nodes(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [node for item in value for node in nodes(item)]
    if not isinstance(value, dict):
        return []
    inner = [node for item in value.values() for node in nodes(item)]
    return inner + ([value] if "_target_" in value else [])


def test_every_shipped_target_has_a_stable_name_of_its_own():
    targets: dict[str, str] = {}
    for file in (PROJECT / "configs").rglob("*.yaml"):
        for node in nodes(yaml.safe_load(file.read_text())):
            if not node["_target_"].startswith("$"):
                assert targets.setdefault(node["_name_"], node["_target_"]) == node["_target_"], (
                    file
                )
    assert len(set(targets.values())) == len(targets)


@pytest.mark.parametrize("name", ["static_k", "planning_cost"])
def test_a_moved_class_keeps_the_fingerprint(name: str, monkeypatch: pytest.MonkeyPatch):
    options = ["policy=adaptive"] if name == "planning_cost" else ["policy=static_k"]
    key = "policy.cost._target_" if name == "planning_cost" else "policy._target_"
    before = of(*options)
    moved = shipped_names() | {name: "another.place.Class"}
    monkeypatch.setattr(fingerprint, "shipped_names", lambda: moved)
    assert of(*options, f"{key}=another.place.Class") == before


def test_another_class_with_the_same_fields_is_another_job():
    plain = of("policy=static_k", "policy.k=1")
    assert plain == of("policy=static_1")
    other = "tests.support.faulty_policy.Faulty"
    assert len({plain, of("policy=static_k", "policy.k=1", f"policy._target_={other}")}) == 2
    assert of("policy=rotate_grow") != of("policy=rotate_anchors_first")


@pytest.mark.parametrize(
    ("name", "options"),
    [("shipped", ["workload=code", "target=tiny_qwen"]), ("prompts", ["workload=code"])],
)
def test_moved_data_that_ships_keeps_the_fingerprint(
    name: str, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = of(*options)
    monkeypatch.setattr(resolvers, {"shipped": "MODELS", "prompts": "PROMPTS"}[name], tmp_path)
    assert of(*options) != before
    monkeypatch.setitem(fingerprint.SHIPPED, name, tmp_path)
    assert of(*options) == before


def test_an_own_policy_is_known_by_its_class_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "my_fingerprinted.py"
    file.write_text("class A:\n    pass\n\n\nclass B:\n    pass\n")
    prints = []
    for name in ("A", "B", "A"):
        monkeypatch.setenv("MTPLAB_POLICY", f"my_fingerprinted.{name}")
        prints.append(of("policy=own"))
    assert prints[0] == prints[2] != prints[1]
    file.write_text(file.read_text() + "\n# another rule\n")
    assert of("policy=own") != prints[0]
    sys.modules.pop("my_fingerprinted")
