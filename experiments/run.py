"""`python -m experiments.run`: the Hydra entry point of a run or, with -m, of a sweep."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from experiments import resolvers
from experiments.checks import BadInput
from experiments.job import run_job
from experiments.precheck import precheck
from experiments.results import PROJECT, write_json

CONFIGS = str(PROJECT / "configs")


@hydra.main(version_base="1.3", config_path=CONFIGS, config_name="run")
def job(config: DictConfig) -> None:
    folder = Path(HydraConfig.get().runtime.output_dir)
    try:
        run_job(config, folder, resolvers.run_id(), Console())
    except BadInput as wrong:
        write_json(folder / "status.json", {"state": "failed", "error": str(wrong)})
        print(f"error: {wrong}", file=sys.stderr)
        sys.exit(2)
    except Exception as fault:
        write_json(folder / "status.json", {"state": "failed", "error": traceback.format_exc()})
        print(f"failed: {fault}", file=sys.stderr)
        if not isinstance(fault, RuntimeError):
            traceback.print_exc()
        sys.exit(1)
    write_json(folder / "status.json", {"state": "ok", "error": None})


def main() -> None:
    resolvers.register()
    try:
        precheck(sys.argv[1:], CONFIGS, "run")
    except BadInput as wrong:
        print(f"error: {wrong}", file=sys.stderr)
        sys.exit(2)
    job()


if __name__ == "__main__":
    main()
