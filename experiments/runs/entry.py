"""The way into a command: what ends it from outside is one line, and output that cannot be shown
ends nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.config.checks import BadInput
from experiments.config.overrides import flags_last, shows
from experiments.io import PROJECT
from experiments.streams import steady_streams

CONFIGS = str(PROJECT / "configs")
INTERRUPTED = 130  # the exit code, as shells have it


def carried_out(command: Callable[[], int]) -> int:
    """The command's exit code: 2 for input that cannot be used, 130 for an interrupt, 1 where a
    file cannot be read or written."""
    with steady_streams():
        try:
            return command()
        except BadInput as wrong:
            return refuse(wrong)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        except OSError as fault:
            print(f"failed: {on_one_line(fault)}", file=sys.stderr)
            return 1


def by_hydra(job: Callable[[], Any], arguments: Sequence[str]) -> None:
    """Carries out a function of `hydra.main`. What fails is raised, where Hydra would print a
    traceback and exit."""
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv[1:] = arguments
    job()


def enter(
    name: str, arguments: Sequence[str], check: Callable[[DictConfig], Any], job: Callable[[], Any]
) -> int:
    """The exit code of a Hydra job that has one config and no sweep: what cannot be used is refused
    before Hydra makes a folder for it. name: of the config; check: raises BadInput."""

    def command() -> int:
        ordered = flags_last(arguments)
        if shows(ordered):
            by_hydra(job, ordered)
            return 0
        given = [one for one in ordered if not one.startswith("-")]
        try:
            with initialize_config_dir(CONFIGS, version_base="1.3"):
                check(compose(name, overrides=given))
        except (HydraException, OmegaConfBaseException) as wrong:
            return refuse(wrong)
        by_hydra(job, ordered)
        return 0

    return carried_out(command)


def refuse(wrong: Exception) -> int:
    print(f"error: {on_one_line(wrong)}", file=sys.stderr)
    return 2


def on_one_line(fault: BaseException) -> str:
    """Its text, or its class where it has none."""
    return " ".join(str(fault).split()) or type(fault).__name__
