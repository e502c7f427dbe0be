"""Every config composes and builds; what an experiment's axes give can be run."""

from __future__ import annotations

import re
from math import prod

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.config.fingerprint import fingerprint_of, resolved
from experiments.config.overrides import jobs_of
from experiments.io import PROJECT
from experiments.run import CONFIGS
from experiments.runs.spec import run_spec
from experiments.runs.validate import Composer
from mtp.costs import LinearCost, save_cost
from tests.support.checkpoints import write_qwen3_5
from tests.support.gemma_checkpoints import write_assistant, write_gemma4

FOLDER = PROJECT / "configs"
GROUPS = sorted(
    folder.name
    for folder in FOLDER.iterdir()
    if folder.is_dir() and folder.name not in ("experiment", "launcher", "model")
)
NAMES = [
    f"{group}={file.stem}"
    for group in GROUPS
    for file in sorted((FOLDER / group).glob("[!_]*.yaml"))
]
EXPERIMENTS = sorted(file.stem for file in (FOLDER / "experiment").glob("*.yaml"))
MODEL = "experiments/assets/models/tiny_qwen"
ALSO = {
    "target=checkpoint": [f"target.path={PROJECT / MODEL}", "target.context=1024"],
    "drafter=tiny_gemma_assistant": ["target=tiny_gemma"],
    "drafter=gemma_assistant": [
        "target=tiny_gemma",
        f"drafter.path={PROJECT}/experiments/assets/models/tiny_gemma/assistant",
    ],
    # which need not be here
    "target=smollm2": ["drafter=none", f"target.path={PROJECT / MODEL}", "target.context=1024"],
    "drafter=smollm2_mtp": ["drafter.path=${target.path}"],
    "target=gemma3_270m": [f"target.path={PROJECT / MODEL}", "target.context=1024"],
    "workload=file": [f"workload.path={PROJECT}/experiments/assets/prompts/code.jsonl"],
    "policy=hindsight": ["workload=synthetic"],
    "policy=oracle_p": ["workload=synthetic"],
    "grant=off": ["share=window"],
    "device=cuda": ["workload=synthetic"],  # which needs none
}


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setenv("MTPLAB_POLICY", "mtp.policies.StaticK")
    resolvers.register()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        yield


@pytest.mark.parametrize("name", [name for name in NAMES if name != "workload=recorded"])
def test_a_config_of_a_group_composes_and_builds(name, tmp_path):
    save_cost(tmp_path / "cost.yaml", LinearCost())
    also = [f"cost.path={tmp_path / 'cost.yaml'}"] if name == "cost=file" else ALSO.get(name, [])
    config = compose("run", overrides=[name, *also])
    run_spec(config)
    assert "${" not in str(resolved(config))


@pytest.mark.parametrize(
    ("target", "drafter"),
    [
        ("smollm2", "smollm2_mtp"),
        ("gemma3_270m", "prompt_lookup"),
        ("tiny_gemma", "tiny_gemma_assistant"),
    ],
)
def test_a_target_may_name_its_drafter_and_another_that_is_asked_for_wins(target, drafter):
    def loader(*overrides):
        return compose("run", overrides=[f"target={target}", *overrides]).drafter

    assert loader() == compose("run", overrides=[f"drafter={drafter}"]).drafter
    assert loader("experiment=quick") == loader()
    assert loader("drafter=none")._target_ == "mtp.drafters.no_drafter"
    assert compose("run").drafter.path == compose("run").target.path


def test_a_recorded_workload_names_what_it_needs():
    with pytest.raises(BadInput, match="workload"):
        run_spec(compose("run", overrides=["workload=recorded", "workload.path=nowhere"]))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiments_jobs_compose_as_hydra_composes_them_and_the_corners_build(name):
    base = compose("run", overrides=[f"experiment={name}"], return_hydra_config=True)
    axes = OmegaConf.select(base, "hydra.sweeper.params") or {}
    jobs = jobs_of([f"experiment={name}"], base)
    assert len(jobs) == max(1, prod(len(str(values).split(",")) for values in axes.values()))
    composer = Composer("run", CONFIGS)
    for job in {0, len(jobs) // 3, len(jobs) - 1}:
        config = composer(jobs[job])
        assert config == compose("run", overrides=jobs[job])
        run_spec(config)


@pytest.mark.parametrize("name", sorted(file.stem for file in (FOLDER / "launcher").glob("*.yaml")))
def test_a_launcher_composes_where_it_is_installed(name):
    if name == "ray":
        pytest.importorskip("hydra_plugins.hydra_ray_launcher")
    base = compose("run", overrides=[f"launcher={name}"], return_hydra_config=True)
    assert "jobs" in base.launcher
    plain = compose("run", overrides=["hydra/launcher=basic"])
    # no result depends on it
    assert fingerprint_of(compose("run", overrides=[f"launcher={name}"])) == fingerprint_of(plain)


def test_every_knob_says_what_it_is_beside_it_or_is_all_that_its_file_is_about():
    files = {
        file: file.read_text()
        for file in FOLDER.glob("*/*.yaml")
        if file.parent.name not in ("experiment", "model")
    }
    assert all(text.startswith("# ") for text in files.values())
    files[FOLDER / "run.yaml"] = (FOLDER / "run.yaml").read_text().split("experiment: null")[1]
    told = {"_target_", "_name_", "_partial_", "path", "key", "name", "kind", "share", "dir"}
    silent = {
        f"{file.relative_to(FOLDER)}: {knob}"
        for file, text in files.items()
        for knob in re.findall(r"^ *(\w+): (?!\$\{)[^#\n]+$", text, flags=re.MULTILINE)
        if knob not in told
        and file.name != "paths.yaml"  # whose knobs are those of linear.yaml, twice
    }
    assert not silent


def test_a_fingerprint_is_of_what_matters():
    one = fingerprint_of(compose("run"))
    assert (
        fingerprint_of(
            compose(
                "run", overrides=["resume=new", "report=true", "cache_dir=x", "launcher.jobs=3"]
            )
        )
        == one
    )
    assert (
        len(
            {
                one,
                *(
                    fingerprint_of(compose("run", overrides=[other]))
                    for other in ("seed=1", "tag=a", "policy.depth=2")
                ),
            }
        )
        == 4
    )


def test_a_drafter_that_does_not_fit_the_target_is_refused_before_anything_is_loaded(tmp_path):
    small = write_qwen3_5(tmp_path / "small")
    headless = write_qwen3_5(tmp_path / "headless", mtp=False)
    target = ["target=checkpoint", "target.context=64"]
    run_spec(compose("run", overrides=[*target, f"target.path={small}"]))
    with pytest.raises(
        BadInput,
        match=r"is for a target of hidden size 256 and 2048 tokens, but .*small has 64 and 320",
    ):
        run_spec(
            compose("run", overrides=[*target, f"target.path={small}", "drafter=tiny_qwen_low"])
        )
    with pytest.raises(
        BadInput,
        match=r"headless has no MTP head, expected tensors mtp\.\*, or drafter=prompt_lookup "
        "or none",
    ):
        run_spec(compose("run", overrides=[*target, f"target.path={headless}"]))
    for fits in ("drafter=prompt_lookup", "drafter=none", "policy=static_0"):
        run_spec(compose("run", overrides=[*target, f"target.path={headless}", fits]))


def test_an_assistant_is_in_a_folder_of_its_own(tmp_path):
    pair, other = (
        write_gemma4(tmp_path / "target"),
        write_gemma4(tmp_path / "other", hidden_size=48),
    )
    assistant = write_assistant(tmp_path / "assistant", pair)
    chosen = ["target=checkpoint", "target.context=64", "drafter=gemma_assistant"]
    with pytest.raises(BadInput, match=r"drafter\.path is not given, expected a checkpoint folder"):
        run_spec(compose("run", overrides=[*chosen, f"target.path={pair}"]))
    chosen.append(f"drafter.path={assistant}")
    run_spec(compose("run", overrides=[*chosen, f"target.path={pair}"]))
    with pytest.raises(
        BadInput, match="is made for a target of hidden size 64, but this target has 48"
    ):
        run_spec(compose("run", overrides=[*chosen, f"target.path={other}"]))
