"""Every job of a command line is composed and checked before the first one starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.sweeper import Sweeper
from omegaconf.errors import OmegaConfBaseException

from experiments.checks import BadInput
from experiments.setup import plan_of

SHOWS = ("--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc", "--resolve")


def precheck(arguments: Sequence[str], configs: str, name: str) -> None:
    """Raises BadInput with one line for the first override, key or value that cannot be used."""
    if any(argument.split("=")[0] in SHOWS for argument in arguments):
        return
    parsed = get_args_parser().parse_args(list(arguments))
    with initialize_config_dir(configs, version_base="1.3"):
        known = set(compose(name))
        for overrides in jobs_of(parsed.overrides, parsed.multirun):
            _no_null_groups(overrides, Path(configs))
            try:
                config = compose(name, overrides=overrides)
                if unknown := sorted(set(config) - known):
                    raise BadInput(f"{unknown[0]} is no key of a run, expected one of {', '.join(sorted(known))}")
                plan_of(config)
            except BadInput:
                raise
            except (HydraException, OmegaConfBaseException, ValueError) as wrong:  # Hydra raises a bare one for group=null
                raise BadInput(_one_line(wrong)) from wrong


def jobs_of(overrides: Sequence[str], multirun: bool) -> list[list[str]]:
    """The overrides of every job of a command line."""
    try:
        parsed = OverridesParser.create().parse_overrides(overrides=list(overrides))
    except HydraException as wrong:
        raise BadInput(_one_line(wrong)) from wrong
    swept = [override for override in parsed if override.is_sweep_override()]
    if not multirun:
        if swept:
            key = swept[0].get_key_element()
            given = str(swept[0].input_line).split("=", 1)[1]
            raise BadInput(f"{key} is {given}: several values need -m, and a list needs brackets: {key}=[{given}]")
        return [list(overrides)]
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    Plugins.instance()
    assert issubclass(BasicSweeper, Sweeper)
    return [list(job) for batch in BasicSweeper.split_arguments(parsed, max_batch_size=None) for job in batch]


def _no_null_groups(overrides: Sequence[str], configs: Path) -> None:
    """Hydra's own answer to GROUP=null names neither."""
    for override in overrides:
        group, _, value = override.partition("=")
        if value == "null" and (configs / group).is_dir():
            options = sorted(file.stem for file in (configs / group).glob("*.yaml"))
            raise BadInput(f"{group} is null, expected one of {', '.join(options)}")


def _one_line(wrong: Exception) -> str:
    """Hydra's own message without its search paths and links."""
    text = " ".join(str(wrong).split())
    for tail in (" Config search path:", " See https:"):
        text = text.split(tail)[0]
    return text
