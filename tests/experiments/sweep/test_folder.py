"""Where sweeps go, when they go on, and what is seen of them; no job runs here."""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from experiments.config.checks import BadInput
from experiments.config.resolvers import folder_name
from experiments.io import write_json
from experiments.runs.validate import Checked
from experiments.sweep import choose
from experiments.sweep.choose import folder_for, repeated
from experiments.sweep.folder import SweepFolder, SweepJob
from experiments.sweep.watch import Watch, last_line

JOBS = ((("seed=0", "k=1"), "aa"), (("seed=1", "k=1"), "bb"))


def checked(path, resume="auto", overrides=("seed=0,1", "k=1"), jobs=JOBS):
    base = OmegaConf.create({"resume": resume, "hydra": {"sweep": {"dir": str(path)}}})
    return Checked(True, tuple(overrides), base, tuple(jobs))


def finish(folder: SweepFolder, job: SweepJob, state="ok", fingerprint=None):
    (folder.path / job.name).mkdir(exist_ok=True)
    write_json(
        folder.path / job.name / "status.json",
        {"state": state, "error": None, "fingerprint": fingerprint or job.fingerprint},
    )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choose, "git_commit", lambda: "c0ffee")


def test_two_sweeps_of_the_same_second_do_not_meet(tmp_path):
    first, claim = folder_for(checked(tmp_path / "20260101-000000-aaaaaaaa"))
    # the first is unfinished, but at work
    second, other = folder_for(checked(tmp_path / "20260101-000000-bbbbbbbb"))
    assert first.path != second.path
    with pytest.raises(BadInput, match="where another process is at work"):
        folder_for(checked(tmp_path / "new", resume=str(first.path)))
    claim.close()
    other.close()
    again, claim = folder_for(checked(tmp_path / "20260101-000009-cccccccc"))
    assert again.path == second.path  # the last one
    claim.close()


def test_the_last_sweep_goes_on_only_where_it_is_the_same_and_unfinished(tmp_path):
    last, claim = folder_for(checked(tmp_path / "1"))
    claim.close()
    other = tuple((overrides, "cc") for overrides, _ in JOBS)
    for n, arguments in enumerate([{"resume": "new"}, {"jobs": other}, {"jobs": JOBS[:1]}]):
        path = tmp_path / f"0{n}"  # sorts before the last one
        fresh, claim = folder_for(checked(path, **arguments))
        claim.close()
        assert fresh.path == path
    for job, state in zip(last.jobs, ("ok", "failed"), strict=True):
        finish(last, job, state)
    again, claim = folder_for(checked(tmp_path / "2"))
    claim.close()
    assert again.path == last.path
    finish(last, last.jobs[1])
    fresh, claim = folder_for(checked(tmp_path / "3"))
    claim.close()
    assert fresh.path == tmp_path / "3"
    (fresh.path / "sweep.json").write_text("of another version")
    another, claim = folder_for(checked(tmp_path / "4"))
    claim.close()
    assert another.path == tmp_path / "4"


@pytest.mark.parametrize("at_work", [True, False])
def test_F08_a_killed_sweep_goes_on_whatever_was_started_beside_it(at_work, tmp_path, monkeypatch):
    first, claim = folder_for(checked(tmp_path / "20260101-000001-a"))
    claim.close()  # killed
    other = checked(tmp_path / "20260101-000002-b", overrides=("seed=7,8",), jobs=JOBS[:1])
    _, others = folder_for(other)
    if not at_work:
        others.close()
    (tmp_path / "20260101-000003-c").mkdir()
    (tmp_path / "20260101-000003-c" / "sweep.json").write_text("[]")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # the same overrides, with other relative paths
    _, elsewhere = folder_for(checked(tmp_path / "20260101-000004-d"))
    elsewhere.close()
    monkeypatch.chdir(tmp_path)
    again, claim = folder_for(checked(tmp_path / "20260101-000005-e"))
    claim.close()
    assert again.path == first.path
    for job in first.jobs:
        finish(first, job)
    fresh, claim = folder_for(checked(tmp_path / "20260101-000006-f"))
    claim.close()
    others.close()
    assert fresh.path == tmp_path / "20260101-000006-f"


def test_a_folder_goes_on_with_the_same_overrides_and_redoes_what_has_another_fingerprint(tmp_path):
    first, claim = folder_for(checked(tmp_path / "1"))
    claim.close()
    for job in first.jobs:
        finish(first, job)
    changed = ((JOBS[0][0], "aa"), (JOBS[1][0], "changed"))
    again, claim = folder_for(checked(tmp_path / "2", resume=str(first.path), jobs=changed))
    claim.close()
    assert [again.done(job) for job in again.jobs] == [True, False]
    with pytest.raises(
        BadInput, match=r"which holds a sweep with other overrides, expected these: seed=0,1 k=1"
    ):
        folder_for(checked(tmp_path / "2", resume=str(first.path), jobs=JOBS[:1]))
    with pytest.raises(BadInput, match=r"holds no sweep\.json, expected the folder of a sweep"):
        folder_for(checked(tmp_path / "2", resume="nowhere"))
    with pytest.raises(BadInput, match="which is not empty"):
        folder_for(checked(first.path, resume="new", overrides=("hydra.sweep.dir=1",)))


def test_resume_alone_repeats_the_command_that_began(tmp_path):
    _, claim = folder_for(
        checked(tmp_path / "1", overrides=("experiment=x", "seed=0,1", "launcher=slurm"))
    )
    claim.close()
    assert repeated(["resume=1"]) == [
        "-m",
        "experiment=x",
        "seed=0,1",
        "launcher=slurm",
        "resume=1",
    ]
    assert repeated(["-m", "resume=1", "launcher=local"]) == [
        "-m",
        "experiment=x",
        "seed=0,1",
        "resume=1",
        "launcher=local",
    ]
    for given in (["resume=1", "seed=0"], ["-m", "resume=new"], ["seed=0"]):
        assert repeated(given) == given


def test_names_are_short_and_safe_and_the_same_job_has_the_same_one():
    wild = SweepJob.numbered(
        [(("tag='a/b','c d'" + "x" * 300,), "f"), (("seed=0",), "f"), (("seed=0",), "f")]
    )
    assert [len(job.name) for job in wild] == [12, 12, 12]
    assert all(set(job.name) <= set("0123456789abcdef-") for job in wild)
    assert len({job.name for job in wild}) == 3
    assert [folder_name(text, "run") for text in (None, "quick", "a/b c", "../..", "[x,y]")] == [
        "run",
        "quick",
        "a-b-c",
        "run",
        "x-y",
    ]


def test_a_job_is_locked_until_its_holder_ends(tmp_path):
    folder, claim = folder_for(checked(tmp_path / "1"))
    entered, order = threading.Event(), []

    def second():
        entered.set()
        with folder.lock(folder.jobs[0]):
            order.append("second")

    with folder.lock(folder.jobs[0]):
        other = threading.Thread(target=second)
        other.start()
        entered.wait()
        threading.Event().wait(0.05)
        order.append("first")
    other.join()
    claim.close()
    assert order == ["first", "second"]


def test_what_is_seen_of_a_sweep(tmp_path):
    folder, claim = folder_for(checked(tmp_path / "1"))
    finish(folder, folder.jobs[1], "failed")  # by an earlier attempt
    said = io.StringIO()
    watch = Watch(folder, folder.jobs, Console(file=said, width=120))
    shown = Console(file=io.StringIO(), width=120)

    def table() -> str:
        with shown.capture() as text:
            watch._look()
            shown.print(watch.table())
        return text.get()

    assert "0 of 2 jobs, 0 failed, 0 running" in table()
    running = folder.path / folder.jobs[0].name
    running.mkdir()
    (running / "job.log").write_text("loading\ndecoding: 7 windows\n\n")
    assert "0 of 2 jobs, 0 failed, 1 running" in table()
    assert f"{folder.jobs[0].name}  seed=0" in table()  # k=1 is common to all
    assert "decoding: 7 windows" in table()
    finish(folder, folder.jobs[0])
    os.rename(folder.path / folder.jobs[1].name, folder.path / "old")
    finish(folder, replace(folder.jobs[1]), "failed")
    assert "2 of 2 jobs, 1 failed, 0 running" in table()
    lines = said.getvalue().splitlines()
    assert [line.rsplit(" ", 2)[0] for line in lines] == [
        f"[1/2] ok {folder.jobs[0].name} seed=0",
        f"[2/2] failed {folder.jobs[1].name} seed=1",
    ]
    claim.close()


def test_the_last_line_of_a_log_that_is_long_or_missing(tmp_path):
    (tmp_path / "log").write_bytes(b"x" * 5000 + "\nlast é\n".encode())
    assert last_line(tmp_path / "log") == "last é"
    assert last_line(tmp_path / "none") == ""


def test_a_half_written_status_is_no_status(tmp_path):
    folder, claim = folder_for(checked(tmp_path / "1"))
    claim.close()
    job = folder.jobs[0]
    assert folder.state(job) == "waiting"
    (folder.path / job.name).mkdir()
    (folder.path / job.name / "status.json").write_text('{"state": "o')
    assert (folder.state(job), folder.done(job)) == ("running", False)
    finish(folder, job, fingerprint="other")
    assert (folder.state(job), folder.done(job)) == ("ok", False)
    assert json.loads((folder.path / "sweep.json").read_text())["jobs"][0]["name"] == job.name
