"""What a command line asks for: its overrides, and the jobs of a sweep. Checked here before
Hydra takes them apart."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentError
from collections.abc import Sequence
from itertools import product

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf

from experiments.config.checks import BadInput

SHOWS = (
    "--help",
    "-h",
    "--hydra-help",
    "--version",
    "--cfg",
    "-c",
    "--info",
    "-i",
    "--shell-completion",
    "-sc",
    "--resolve",
)
NOT_DIGITS = re.compile(r"\+\d+|\d+(_\d+)+")
# how a sweep is carried out, not what its jobs are
OF_THE_SWEEP = (
    "launcher",
    "resume",
    "report",
    "hydra/launcher",
    "hydra/sweeper",
    "hydra.mode",
    "hydra.run.dir",
    "hydra.output_subdir",
)
OF_THE_SWEEP_BELOW = ("launcher.", "hydra.launcher.", "hydra.sweep.", "hydra.sweeper.")


def flags_last(arguments: Sequence[str]) -> list[str]:
    """The same overrides and flags; Hydra itself takes no override after a flag. Raises BadInput
    for a flag that it does not have."""
    parser = get_args_parser()
    parser.exit_on_error = False
    try:
        parsed, unknown = parser.parse_known_intermixed_args(list(arguments))
    except ArgumentError as wrong:
        raise BadInput(one_line(wrong)) from wrong
    if unknown:
        raise BadInput(f"{unknown[0]} is no flag, expected some of Hydra's (see --hydra-help)")
    flags = list(arguments)
    for override in parsed.overrides:
        flags.remove(override)
    return [*parsed.overrides, *flags]


def shows(arguments: Sequence[str]) -> bool:
    """Whether something is only to be shown: Hydra does that alone."""
    return any(argument.split("=")[0] in SHOWS for argument in arguments)


def parse(overrides: Sequence[str]) -> list[Override]:
    for override in overrides:
        key, _, given = override.partition("=")
        for item in given.strip("[]").split(","):
            if NOT_DIGITS.fullmatch(item):  # Hydra would read 8 and 80
                raise BadInput(
                    f"{key} is {item}, expected an integer as written in digits "
                    f"(a text needs quotes: \"{key}='{item}'\")"
                )
    parser = OverridesParser.create()
    return [_parsed(override, parser) for override in overrides]


def _parsed(override: str, parser: OverridesParser) -> Override:
    """Raises BadInput: names of files hold what Hydra's grammar reserves."""
    try:
        return parser.parse_override(override)
    except HydraException as wrong:
        key, equals, given = override.partition("=")
        if not equals:
            raise BadInput(one_line(wrong)) from wrong
        raise BadInput(
            f"{override} is no value as Hydra writes it, expected one for {key}, or a text in "
            f"quotes: {_in_a_shell(f'{key}={quoted(given)}')}"
        ) from wrong


def _in_a_shell(word: str) -> str:
    """Double quotes are easier to read, where they do."""
    return shlex.quote(word) if set(word) & set('"$`\\!') else f'"{word}"'


def key_of(override: Override | str) -> str:
    """As in the config, without the + or ~ before it."""
    written = (
        override.get_key_element() if isinstance(override, Override) else override.partition("=")[0]
    )
    return written.lstrip("+~")


def single_job(overrides: Sequence[str]) -> list[str]:
    """Raises BadInput where several values are given without -m."""
    for override in parse(overrides):
        if override.is_sweep_override():
            key, given = key_of(override), str(override.input_line).split("=", 1)[1]
            raise BadInput(
                f"Ambiguous value for argument '{override.input_line}': several values need -m, "
                "and a list needs brackets: "
                f"{key}=[{given}], a text quotes: {key}='{given}'"
            )
    return list(overrides)


def jobs_of(overrides: Sequence[str], base: DictConfig | None = None) -> list[list[str]]:
    """The overrides of every job of a sweep, without those that only say how it is carried out.

    base: the config without what is swept, with `hydra`; an experiment's own axes
    (hydra.sweeper.params) come from there."""
    axes = OmegaConf.select(base, "hydra.sweeper.params") if base is not None else None
    parsed = parse([*(f"{key}={values}" for key, values in (axes or {}).items()), *overrides])
    for override in parsed:
        if override.is_sweep_override():
            _needs_brackets(override, base)
    choices: dict[
        str, list[str]
    ] = {}  # by key: what is given on the command line replaces an experiment's axis
    for override in parsed:
        if not of_the_sweep(key_of(override)):
            choices[override.get_key_element()] = _values(override)
    return [list(job) for job in product(*choices.values())]


def of_the_sweep(key: str) -> bool:
    return key in OF_THE_SWEEP or key.startswith(OF_THE_SWEEP_BELOW)


def not_swept(overrides: Sequence[str]) -> list[str]:
    """Those that hold whatever is swept: no key of a group whose choice is swept, which may lack
    it otherwise."""
    parsed = parse(overrides)
    swept = tuple(f"{key_of(one)}." for one in parsed if one.is_sweep_override())
    return [
        str(one.input_line)
        for one in parsed
        if not one.is_sweep_override() and not key_of(one).startswith(swept)
    ]


def quoted(text: str) -> str:
    """A text as the value of an override, whatever it holds."""
    return QuotedString(text, Quote.single).with_quotes()


def one_line(wrong: Exception) -> str:
    """Hydra's own message without its search paths and links."""
    text = " ".join(str(wrong).split())
    for tail in (" Config search path:", " See https:"):
        text = text.split(tail)[0]
    return text


def _values(override: Override) -> list[str]:
    """The override, once for each value it gives."""
    if not override.is_sweep_override():
        return [str(override.input_line)]
    if not override.is_discrete_sweep():
        raise BadInput(
            f"{override.input_line} is no list of values, expected some with commas between them, "
            "or range(...)"
        )
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def _needs_brackets(override: Override, base: DictConfig | None) -> None:
    """A list given without brackets would be a sweep over its items."""
    key, given = key_of(override), str(override.input_line).split("=", 1)[1]
    if (
        base is not None
        and isinstance(OmegaConf.select(base, key, throw_on_missing=False), ListConfig)
        and override.is_discrete_sweep()
    ):
        numbers = [value for value in override.sweep_iterator() if isinstance(value, (int, float))]
        if numbers:
            raise BadInput(
                f"{key} is {given}: {key} must be a list, expected brackets: {key}=[{given}], or "
                f"{key}=[...],[...] for two jobs"
            )
