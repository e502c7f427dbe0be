"""`python -m experiments.run`: the Hydra entry point of a run or, with -m, of a sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.config.completion import complete, completes
from experiments.config.overrides import flags_last, shows
from experiments.io import git_commit, versions, write_json
from experiments.runs.entry import CONFIGS, by_hydra, carried_out
from experiments.runs.status import FILE, Status, state_in
from experiments.sweep.attempt import die_with_parent

# what needs torch is imported late: tab completion and --help need none of it

ended: list[Status] = []  # how the job of this process ended


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="run")
def job(config: DictConfig) -> None:
    """One job. How it ended is in its folder and in `ended` before anything of it is shown."""
    from experiments.config.fingerprint import fingerprint_of, resolved
    from experiments.runs.dates import settle_date
    from experiments.runs.job import run_job

    folder, run_id = Path(HydraConfig.get().runtime.output_dir), resolvers.run_id()
    fingerprint, show = None, None
    fault: BaseException | None
    try:
        settle_date(config)
        fingerprint = fingerprint_of(config)
        about = {
            "run_id": run_id,
            "fingerprint": fingerprint,
            "git_commit": git_commit(),
            "versions": versions(),
        }
        write_json(folder / "config.json", about | {"config": resolved(config)})
        done = run_job(config, folder, run_id, Console())
        fault, show = done.failure, done.show
    except BaseException as raised:  # an interrupt, or a panic of a library, is no other end
        fault = raised
    ended.append(Status.of(fault, folder).kept(folder, fingerprint))
    if show is not None:
        show()


def main() -> None:
    sys.exit(carried_out(partial(_command, sys.argv[1:])))


def _command(arguments: Sequence[str]) -> int:
    """The exit code. Raises BadInput before anything starts."""
    from experiments.runs.validate import validate
    from experiments.sweep.choose import repeated
    from experiments.sweep.run import run_sweep

    resolvers.register()
    die_with_parent()
    if os.getcwd() not in sys.path:  # `mtplab` finds a policy where `python -m` does
        sys.path.insert(0, os.getcwd())
    if completes(arguments):
        complete(job, arguments)
        return 0
    arguments = flags_last(arguments)
    if shows(arguments):
        by_hydra(job, arguments)
        return 0
    checked = validate(repeated(arguments), CONFIGS, "run")
    if checked.sweep:
        return run_sweep(checked, CONFIGS)
    _take_folder(checked.base)
    by_hydra(job, arguments)
    status = ended.pop()
    if status.line is not None:
        print(status.line, file=sys.stderr)
    return status.code


def _take_folder(base: DictConfig) -> None:
    """Raises BadInput where a run is already; but a study that failed goes on in its folder,
    cell by cell."""
    status = Path(base.hydra.run.dir) / FILE
    if not status.exists():
        return
    if base.study is None or state_in(status) == "ok":
        raise BadInput(
            f"hydra.run.dir is {base.hydra.run.dir}, which holds a run already, expected a folder "
            "of its own"
        )
    status.unlink()


if __name__ == "__main__":
    main()
