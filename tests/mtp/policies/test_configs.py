"""Every policy and every cost model of configs/ composes and builds; every knob of a policy is
in its YAML."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate

from experiments.config import resolvers
from experiments.config.fingerprint import without_names
from mtp.costs import LinearCost, save_cost
from mtp.policies import Policy, TapeOracle
from tests.support import ROOT

CONFIGS = ROOT / "configs"
POLICIES = sorted(file.stem for file in (CONFIGS / "policy").glob("[!_]*.yaml"))
COSTS = sorted(file.stem for file in (CONFIGS / "cost").glob("*.yaml"))


def composed(*overrides: str):
    resolvers.register()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("run", overrides=list(overrides))


@pytest.mark.parametrize("name", POLICIES)
def test_policy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTPLAB_POLICY", "mtp.policies.StaticK")
    node = composed(f"policy={name}").policy
    made = instantiate(without_names(node), _convert_="all")
    if node.get("_partial_", False):
        made = made(oracle=TapeOracle({}))
    assert isinstance(made, Policy)
    if name not in ("own", "record"):
        knobs = {
            field.name for field in dataclasses.fields(get_class(node._target_)) if field.init
        } - {"oracle"}
        missing = {"survival_topk": {"skip_cap"}}.get(name, set())
        assert {str(key) for key in node if not str(key).startswith("_")} == knobs - missing


@pytest.mark.parametrize("name", COSTS)
def test_cost(name: str, tmp_path: Path) -> None:
    save_cost(tmp_path / "cost.yaml", LinearCost())
    overrides = [f"cost.path={tmp_path / 'cost.yaml'}"] if name == "file" else []
    cost = instantiate(without_names(composed(f"cost={name}", *overrides).cost), _convert_="all")
    assert 0 < cost.window(1, 1, 0) < cost.window(8, 2, 3) < 1
    assert cost.prefill(10) > 0
    assert cost.capture_s >= 0


def test_a_knob_of_a_nested_cost_reaches_the_policy() -> None:
    node = composed(
        "policy=shadow_beta", "cost.row=0.01", "buckets=tight", "policy.cost.factor=1.4"
    ).policy
    policy = instantiate(without_names(node), _convert_="all")
    assert policy.cost.window(2, 1, 0) - policy.cost.window(1, 1, 0) == pytest.approx(0.014)
