"""`python -m experiments.run`: the Hydra entry point of a run or, with -m, of a sweep."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig
from rich.console import Console

from experiments import resolvers
from experiments.checks import BadInput
from experiments.job import run_job
from experiments.precheck import precheck
from experiments.results import PROJECT, write_json

CONFIGS = str(PROJECT / "configs")


failures: list[tuple[str, int]] = []  # (what failed, exit code) of every job of this process


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="run")
def job(config: DictConfig) -> None:
    """One job. Its failure is kept in its folder and in `failures`; the other jobs of a sweep go on."""
    folder = Path(HydraConfig.get().runtime.output_dir)
    if (folder / "status.json").exists():
        failures.append((f"error: {folder} holds a run already, expected a folder of its own", 2))
        return
    state: dict[str, str | None] = {"state": "ok", "error": None}
    try:
        swept = HydraConfig.get().mode == RunMode.MULTIRUN
        run_id = resolvers.run_id() + (f"-{HydraConfig.get().job.num}" if swept else "")
        run_job(config, folder, run_id, Console())
    except BadInput as wrong:
        failures.append((f"error: {wrong}", 2))
        state = {"state": "failed", "error": str(wrong)}
    except Exception as fault:
        failures.append((f"failed: {fault} (see {folder / 'status.json'})", 1))
        state = {"state": "failed", "error": traceback.format_exc()}
    write_json(folder / "status.json", state)


def main() -> None:
    resolvers.register()
    try:
        precheck(sys.argv[1:], CONFIGS, "run")
    except BadInput as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        sys.exit(2)
    job()
    for what, _ in failures:
        print(what, file=sys.stderr)
    if failures:
        sys.exit(failures[0][1] if len(failures) == 1 else 1)


if __name__ == "__main__":
    main()
