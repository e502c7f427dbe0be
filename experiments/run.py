"""`python -m experiments.run`: the Hydra entry point of a run or, with -m, of a sweep."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.config.completion import complete, completes
from experiments.config.overrides import shows
from experiments.io import PROJECT, git_commit, versions, write_json
from experiments.sweep.attempt import die_with_parent

# what needs torch is imported late: tab completion and --help need none of it

CONFIGS = str(PROJECT / "configs")

failures: list[tuple[str, int]] = []  # what failed in this process, and its exit code


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="run")
def job(config: DictConfig) -> None:
    """One job. Its failure is kept in its folder and in `failures`."""
    from experiments.config.fingerprint import fingerprint_of, resolved
    from experiments.runs.dates import settle_date
    from experiments.runs.job import run_job

    folder, run_id = Path(HydraConfig.get().runtime.output_dir), resolvers.run_id()
    settle_date(config)
    fingerprint = fingerprint_of(config)
    state: dict[str, str | None] = {"state": "ok", "error": None}
    try:
        about = {
            "run_id": run_id,
            "fingerprint": fingerprint,
            "git_commit": git_commit(),
            "versions": versions(),
        }
        write_json(folder / "config.json", about | {"config": resolved(config)})
        run_job(config, folder, run_id, Console())
    except BadInput as wrong:
        failures.append((f"error: {wrong}", 2))
        state = {"state": "failed", "error": str(wrong)}
    except Exception as fault:
        failures.append((f"failed: {fault} (see {folder / 'status.json'})", 1))
        state = {"state": "failed", "error": traceback.format_exc()}
    write_json(folder / "status.json", state | {"fingerprint": fingerprint})


def main() -> None:
    resolvers.register()
    die_with_parent()
    arguments = sys.argv[1:]
    if completes(arguments):
        complete(job, arguments)
        return
    if shows(arguments):
        job()
        return
    try:
        code = _checked_and_run(arguments)
    except BadInput as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        code = 2
    sys.exit(code)


def _checked_and_run(arguments: Sequence[str]) -> int:
    """The exit code. Raises BadInput before anything starts."""
    from experiments.runs.validate import validate
    from experiments.sweep.choose import repeated
    from experiments.sweep.run import run_sweep

    checked = validate(repeated(arguments), CONFIGS, "run")
    if checked.sweep:
        return run_sweep(checked, CONFIGS)
    _take_folder(checked.base)
    job()
    for what, _ in failures:
        print(what, file=sys.stderr)
    return failures[0][1] if failures else 0


def _take_folder(base: DictConfig) -> None:
    """Raises BadInput where a run is already; but a study that failed goes on in its folder,
    cell by cell."""
    status = Path(base.hydra.run.dir) / "status.json"
    if not status.exists():
        return
    if base.study is None or json.loads(status.read_text())["state"] == "ok":
        raise BadInput(
            f"hydra.run.dir is {base.hydra.run.dir}, which holds a run already, expected a folder "
            "of its own"
        )
    status.unlink()


if __name__ == "__main__":
    main()
