"""Every job of a command line is composed and checked before the first one starts."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import get_args_parser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config.build import no_such_key
from experiments.config.checks import BadInput
from experiments.config.fingerprint import fingerprint_of
from experiments.config.overrides import jobs_of, key_of, not_swept, one_line, parse, single_job
from experiments.runs.dates import settle_date
from experiments.runs.spec import run_spec


@dataclass(frozen=True)
class Checked:
    """A command line whose every job can be used."""

    sweep: bool
    overrides: tuple[str, ...]  # as given
    base: DictConfig  # its config without what is swept, with `hydra`
    # each one's overrides and the fingerprint of its config
    jobs: tuple[tuple[tuple[str, ...], str], ...]


def validate(arguments: Sequence[str], configs: str, name: str) -> Checked:
    """Raises BadInput with one line for the first override, key or value that cannot be used."""
    parsed = get_args_parser().parse_args(list(arguments))
    with initialize_config_dir(configs, version_base="1.3"):
        known = _known(configs, name)
        parse(parsed.overrides)
        base = _composed(name, not_swept(parsed.overrides), configs, whole=True)
        sweep = parsed.multirun or base.hydra.mode == RunMode.MULTIRUN
        if sweep and not base.hydra.sweeper._target_.endswith(".BasicSweeper"):
            raise BadInput(
                f"hydra/sweeper is {base.hydra.runtime.choices['hydra/sweeper']}, expected basic"
            )
        jobs, compose_job = [], Composer(name, configs)
        for overrides in (
            jobs_of(parsed.overrides, base) if sweep else [single_job(parsed.overrides)]
        ):
            config = (
                compose_job(overrides)
                if sweep
                else OmegaConf.masked_copy(base, [key for key in map(str, base) if key != "hydra"])
            )
            if unknown := sorted(set(config) - known):
                raise BadInput(
                    f"{unknown[0]} is no key of a run, expected one of {', '.join(sorted(known))}"
                )
            jobs.append((tuple(overrides), _checked(config)))
    return Checked(sweep, tuple(parsed.overrides), base, tuple(jobs))


@cache
def _known(configs: str, name: str) -> frozenset[str]:
    """The keys a config may have; within Hydra's initialisation."""
    return frozenset(map(str, compose(name)))


class Composer:
    """Composes the jobs of a sweep. What Hydra does slowly, it does once for each choice of
    groups; the values that differ are set as Hydra sets them."""

    def __init__(self, name: str, configs: str) -> None:
        self._name, self._configs = name, configs
        self._made: dict[tuple[str, ...], DictConfig] = {}

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        """Raises BadInput."""
        groups = tuple(one for one in overrides if self._of_a_group(key_of(one)))
        if groups not in self._made:
            self._made[groups] = _composed(self._name, groups, self._configs)
        config = copy.deepcopy(self._made[groups])
        values = [
            one
            for one in parse(overrides)
            if not self._of_a_group(key_of(one)) and not key_of(one).startswith("hydra.")
        ]
        try:
            ConfigLoaderImpl._apply_overrides_to_config(values, config)
        except (HydraException, OmegaConfBaseException) as wrong:
            refusal = _of_no_key(wrong, self._name, overrides)
            raise refusal or BadInput(one_line(wrong)) from wrong
        return config

    def _of_a_group(self, key: str) -> bool:
        return "/" in key or "@" in key or (Path(self._configs) / key).is_dir()


def _composed(name: str, overrides: Sequence[str], configs: str, whole: bool = False) -> DictConfig:
    """whole: with `hydra`."""
    _no_null_groups(overrides, Path(configs))
    try:
        return compose(name, overrides=list(overrides), return_hydra_config=whole)
    except (
        HydraException,
        OmegaConfBaseException,
        ValueError,
        AssertionError,
    ) as wrong:  # Hydra raises bare ones too
        if refusal := _of_no_key(wrong, name, overrides):
            raise refusal from wrong
        hint = " (the extras sweep and ray bring more)" if "hydra/launcher" in str(wrong) else ""
        raise BadInput(one_line(wrong) + hint) from wrong


def _of_no_key(wrong: Exception, name: str, overrides: Sequence[str]) -> BadInput | None:
    """Hydra advises to append what it does not know; a class then refuses it."""
    unknown = re.match("Could not override '(.+?)'", str(wrong))
    override = next((one for one in overrides if unknown and key_of(one) == unknown[1]), None)
    if override is None:
        return None
    choices = [one for one in overrides if "." not in key_of(one) and one != override]
    return no_such_key(compose(name, overrides=choices), override)


def _checked(config: DictConfig) -> str:
    try:
        run_spec(config)
        settle_date(config)
        return fingerprint_of(config)
    except BadInput:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as wrong:
        raise BadInput(one_line(wrong)) from wrong


def _no_null_groups(overrides: Sequence[str], configs: Path) -> None:
    """Hydra's own answer to GROUP=null names neither."""
    for override in overrides:
        group, _, value = override.partition("=")
        if value == "null" and (configs / group).is_dir():
            options = sorted(file.stem for file in (configs / group).glob("[!_]*.yaml"))
            raise BadInput(f"{group} is null, expected one of {', '.join(options)}")
