"""Where the jobs of a sweep run: in processes of this machine, or wherever a launcher of Hydra's
takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from hydra import initialize_config_dir
from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig

from experiments.config import resolvers
from experiments.config.checks import BadInput, integer
from experiments.config.overrides import key_of, not_swept, quoted
from experiments.runs.status import Status
from experiments.sweep.attempt import attempt
from experiments.sweep.folder import SweepFolder, SweepJob

POLL_S = 0.5

Launch = Callable[[SweepFolder, Sequence[SweepJob]], None]


def launcher_of(base: DictConfig, overrides: Sequence[str], configs: str) -> Launch:
    """base: the config with `hydra`; overrides: of the command. Raises BadInput."""
    jobs = base.launcher.jobs
    if jobs is not None:
        integer("launcher.jobs", jobs, 1)
    if base.hydra.launcher._target_.endswith(".BasicLauncher"):
        if jobs is None:
            raise BadInput("launcher.jobs is null, expected an integer, at least 1")
        return lambda folder, todo: _local(folder, todo, jobs)
    return lambda folder, todo: _by_hydra(folder, todo, overrides, configs)


def _local(folder: SweepFolder, todo: Sequence[SweepJob], jobs: int) -> None:
    threads = max(1, (os.cpu_count() or 1) // jobs) if jobs > 1 else None
    pool = ThreadPoolExecutor(jobs)
    try:
        running = [pool.submit(attempt, folder.path, job.name, threads=threads) for job in todo]
        while wait(
            running, timeout=POLL_S
        ).not_done:  # a thread that waits for ever may not see Ctrl-C
            continue
    except KeyboardInterrupt:  # what runs ends with this process
        for job in todo:
            if folder.state(job) == "running":
                Status.of(KeyboardInterrupt(), folder.path / job.name).kept(
                    folder.path / job.name, job.fingerprint
                )
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    for one in running:
        one.result()


def _by_hydra(
    folder: SweepFolder, todo: Sequence[SweepJob], overrides: Sequence[str], configs: str
) -> None:
    """The launcher runs `supervise`, which starts the job's own process where it is."""
    own = ("hydra.sweep.", "hydra.sweeper.", "hydra.run.", "hydra.job.chdir", "hydra.output_subdir")
    given = [one for one in not_swept(overrides) if not key_of(one).startswith(own)]
    fixed = [
        f"hydra.sweep.dir={quoted(str(folder.path))}",
        "hydra.output_subdir=null",
        "hydra.job.chdir=false",
    ]
    with initialize_config_dir(configs, version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("run", [*given, *fixed], run_mode=RunMode.MULTIRUN)
        HydraConfig.instance().set_config(config)
        context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
        launcher = Plugins.instance().instantiate_launcher(context, supervise, config)
        # the others it adds itself
        common = [one for one in given if not key_of(one).startswith(("hydra.", "hydra/"))]
        launcher.launch(
            [[*common, f"hydra.sweep.subdir={job.name}"] for job in todo], initial_job_idx=0
        )


def supervise(config: DictConfig) -> None:
    """What a launcher of Hydra's carries out, perhaps on another machine."""
    resolvers.register()
    sweep = HydraConfig.get().sweep
    attempt(Path(sweep.dir), sweep.subdir)
