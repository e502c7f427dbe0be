"""N03: a chat template that writes the date: one date per sweep, in config and fingerprint, kept
when the sweep goes on another day; the report pairs runs of one date and says why others are
alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from experiments.assets import MODELS
from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.config.fingerprint import fingerprint_of, resolved
from experiments.report.arms import arms_of
from experiments.report.baseline import baselines
from experiments.report.headline import headline
from experiments.report.notes import notes
from experiments.report.runs import find_runs
from experiments.run import CONFIGS
from experiments.runs.dates import TODAY, settle_date, today
from experiments.runs.setup import setup
from experiments.runs.spec import run_spec
from experiments.runs.validate import Checked, validate
from experiments.sweep import attempt
from experiments.sweep.choose import folder_for, on_its_day
from experiments.sweep.folder import SweepFolder
from tests.support.run_folders import write_run

MONDAY, TUESDAY = "2026-11-30", "2026-12-01"
DATED = "{{ strftime_now('%d %B %Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.fixture(autouse=True)
def monday(monkeypatch: pytest.MonkeyPatch) -> None:
    resolvers.register()
    monkeypatch.setenv(TODAY, MONDAY)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(shutil.copytree(MODELS / "tiny_qwen", tmp_path_factory.mktemp("t") / "dated"))
    (folder / "chat_template.jinja").write_text(DATED)
    return folder


def of(target: Path, *overrides: str) -> DictConfig:
    options = ["workload.requests=1", "device=cpu", "drafter=none", "policy=static_0", *overrides]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        config = compose("run", overrides=[f"target.path='{target}'", *options])
    settle_date(config)
    return config


def date_in(config: DictConfig) -> Any:
    return resolved(config)["workload"]["date"]


def test_N03_the_date_is_in_config_and_fingerprint_where_prompts_depend_on_it(
    target: Path, monkeypatch: pytest.MonkeyPatch
):
    plain = MODELS / "tiny_qwen"
    first = of(target), of(plain), of(target, "workload.chat=off")
    monkeypatch.setenv(TODAY, TUESDAY)
    second = of(target), of(plain), of(target, "workload.chat=off")
    given = of(target, f"workload.date={MONDAY}")
    assert [date_in(one) for one in (*first, *second)] == [MONDAY, None, None, TUESDAY, None, None]
    assert fingerprint_of(first[0]) == fingerprint_of(given) != fingerprint_of(second[0])
    assert [*map(fingerprint_of, first[1:])] == [*map(fingerprint_of, second[1:])]


def test_N03_prompts_name_the_date_of_the_config(target: Path):
    threads = torch.get_num_threads()

    def prompt(*overrides: str) -> tuple[int, ...]:
        config = of(target, *overrides)
        return setup(run_spec(config), config).requests[0].prompt

    assert prompt() == prompt(f"workload.date={MONDAY}") != prompt(f"workload.date={TUESDAY}")
    torch.set_num_threads(threads)


@pytest.mark.parametrize("value", ["20261201", "2026-13-01", "'2026-12-01 10:00'", "5"])
def test_a_date_that_is_none_is_refused(value: str):
    with pytest.raises(BadInput, match=r"workload\.date is .*expected a date like 2026-12-01"):
        validate(["workload=chat", f"workload.date={value}"], CONFIGS, "run")


def checked(where: Path, *more: str, own: bool = True) -> Checked:
    """As of a command whose jobs' configs hold the date. own: the folder is given."""
    base = OmegaConf.create({"resume": "auto", "hydra": {"sweep": {"dir": str(where)}}})
    overrides = ("seed=0,1", *more, *([f"hydra.sweep.dir={where}"] if own else ()))
    jobs = tuple(((f"seed={seed}", *more), f"{seed} {today()}") for seed in range(2))
    return Checked(True, overrides, base, jobs)


def started(where: Path) -> SweepFolder:
    folder, claim = folder_for(checked(where))
    claim.close()
    return folder


def test_N03_a_sweep_that_goes_on_another_day_keeps_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = started(tmp_path / "sweep")
    assert SweepFolder.read(first.path).date == MONDAY
    monkeypatch.setenv(TODAY, TUESDAY)
    fresh = checked(tmp_path / "sweep")
    assert [job.fingerprint for job in first.jobs] != [one for _, one in fresh.jobs]
    folder, claim = folder_for(on_its_day(fresh, lambda: checked(tmp_path / "sweep")))
    claim.close()
    assert (folder.jobs, folder.date) == (first.jobs, MONDAY)


@pytest.mark.parametrize("state", ["unfinished", "done", "of other jobs"])
def test_N03_the_last_sweep_lends_its_date_only_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
):
    first = started(tmp_path / "20261130-1")
    for job in first.jobs if state == "done" else ():
        (first.path / job.name).mkdir()
        done = {"state": "ok", "fingerprint": job.fingerprint}
        (first.path / job.name / "status.json").write_text(json.dumps(done))
    monkeypatch.setenv(TODAY, TUESDAY)
    fresh, more = tmp_path / "20261201-1", ["k=1"] if state == "of other jobs" else []
    command = on_its_day(checked(fresh, *more, own=False), lambda: checked(fresh, *more, own=False))
    folder, claim = folder_for(command)
    claim.close()
    if state == "unfinished":
        assert (folder.path, folder.date) == (first.path, MONDAY)
    else:
        assert (folder.path, folder.date) == (fresh, TUESDAY)
        assert [job.fingerprint for job in folder.jobs] == [f"0 {TUESDAY}", f"1 {TUESDAY}"]


def test_N03_a_job_is_told_the_date_of_its_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = started(tmp_path / "sweep")
    monkeypatch.setenv(TODAY, TUESDAY)
    told: list[str] = []

    def popen(command: Any, env: dict[str, str], **_: Any) -> Any:
        told.append(env[TODAY])
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(attempt.subprocess, "Popen", popen)
    attempt.attempt(folder.path, folder.jobs[0].name)
    assert told == [MONDAY]


def write_dated(folder: Path, policy: str, date: str | None, k: int | None = None) -> None:
    write_run(folder, policy=policy, k=k, config={"workload.date": None})
    about = {"config": {"workload": {"date": date}}}
    (folder / "config.json").write_text(json.dumps(about))


def test_N03_the_report_pairs_runs_of_one_date_and_names_the_others(tmp_path: Path):
    write_dated(tmp_path / "0", "static_k", MONDAY, 0)
    write_dated(tmp_path / "1", "rotate_grow", MONDAY)
    write_dated(tmp_path / "2", "rotate_grow", TUESDAY)
    runs = find_runs(tmp_path)
    arms = arms_of(runs)
    rows = headline(arms, baselines(arms, None))
    against = {row.arm.values["workload.date"] + row.arm.values["policy"]: row for row in rows}
    assert against[MONDAY + "rotate_grow"].ratio is not None
    assert against[TUESDAY + "rotate_grow"].ratio is None
    assert [line for line in notes(runs, rows, 1) if "the date" in line and TUESDAY in line]


def test_N03_runs_whose_prompts_name_no_date_are_one_arm_on_any_day(tmp_path: Path):
    for n in range(2):
        write_dated(tmp_path / str(n), "static_k", None, 0)
    assert len(arms_of(find_runs(tmp_path))) == 1
