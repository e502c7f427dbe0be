"""A config node becomes an object, once, at the edge; what its constructor refuses becomes one
line."""

from __future__ import annotations

import contextlib
import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate, to_absolute_path
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config.checks import BadInput
from experiments.config.fingerprint import NAME, without_names
from experiments.weights.place import how_to_get

PATHS = ("path", "trace")


def build(node: DictConfig, name: str, **arguments: Any) -> Any:
    """arguments: what the node leaves open (`_partial_: true`). Raises BadInput."""
    try:
        if missing := sorted(OmegaConf.missing_keys(node)):
            raise BadInput(f"{name}.{missing[0]} is not given")
        made = instantiate(without_names(node), _convert_="all")
        if arguments:
            known_keys(made, name, set(arguments))
        return made(**arguments) if arguments else made
    except InstantiationException as wrong:
        cause = wrong.__cause__ or wrong
        if unexpected := re.search(r"unexpected keyword argument '(\w+)'", str(cause)):
            _refuse_unexpected(unexpected[1], node, name)
        if isinstance(cause, (ValueError, TypeError, OSError, ImportError)):
            raise BadInput(one_line(cause, name)) from wrong
        raise
    except (ValueError, OSError, OmegaConfBaseException) as wrong:
        raise BadInput(one_line(wrong, name)) from wrong


def _refuse_unexpected(key: str, node: DictConfig, name: str) -> None:
    if key in node:
        rest = OmegaConf.masked_copy(node, [str(one) for one in node if one != key])
        if refusal := no_such_key(OmegaConf.create({name: rest}), f"{name}.{key}={node[key]}"):
            raise refusal


def no_such_key(config: DictConfig, override: str) -> BadInput | None:
    """The refusal of an override of a key that its group does not have. config: without it. None:
    it has it."""
    key, _, given = override.partition("=")
    above, _, name = key.lstrip("+~").rpartition(".")
    node = OmegaConf.select(config, above, throw_on_missing=False) if above else config
    if not isinstance(node, DictConfig):
        return BadInput(f"{key} is {given}, but {above} is {node}, which has no keys")
    if name in (known := keys_of(node)):
        return None
    where = node.get(NAME, above) if above else "a run"
    keys = f"one of {', '.join(known)}" if known else f"another {above}"
    return BadInput(f"{key} is {given}, but {where} has no {name}, expected {keys}")


def keys_of(node: DictConfig) -> list[str]:
    """What may be given there: the node's keys, and what its class takes besides."""
    known = {str(key) for key in node if str(key)[0] != "_"}
    if "_target_" in node and not node.get("_partial_"):
        with contextlib.suppress(Exception):  # what is wrong with it is reported when it is built
            taken = inspect.signature(get_object(node._target_)).parameters.values()
            known |= {one.name for one in taken if one.kind is not one.VAR_KEYWORD}
    return sorted(known)


def known_keys(made: partial[Any], name: str, given: set[str]) -> None:
    """given: arguments that are no keys."""
    known = inspect.signature(made.func).parameters
    if unknown := sorted(made.keywords.keys() - known.keys()):
        raise BadInput(
            f"{name}.{unknown[0]} is no key of {name}, expected one of "
            f"{', '.join(sorted(known.keys() - given))}"
        )


def only_keys(group: str, node: DictConfig, known: set[str]) -> None:
    if unknown := sorted(set(map(str, node)) - known - {NAME}):
        raise BadInput(
            f"{group}.{unknown[0]} is no key of {group}, expected "
            f"{' or '.join(sorted(name for name in known if name[0] != '_'))}"
        )


def absolute(node: DictConfig) -> DictConfig:
    """Relative paths, at any depth, are the launch folder's, whatever the working folder of the
    job."""
    return OmegaConf.merge(node, _absolute(OmegaConf.to_container(node, resolve=True)))  # type: ignore[return-value]


def _absolute(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _absolute(item, str(key)) for key, item in value.items()}
    return (
        to_absolute_path(value)
        if name in PATHS and isinstance(value, str) and value != "???"
        else value
    )


def folder(key: str, node: DictConfig) -> str:
    if OmegaConf.is_missing(node, "path"):
        raise BadInput(f"{key} is not given, expected a checkpoint folder")
    path = to_absolute_path(str(node.path))
    if not Path(path).is_dir():
        if how := how_to_get(Path(path)):
            raise BadInput(how)
        if path.endswith(".gguf"):
            raise BadInput(
                f"{key} is {node.path}, a GGUF file, expected a checkpoint folder with safetensors "
                "(make weights converts the packages it knows)"
            )
        raise BadInput(f"{key} is {node.path}, expected an existing checkpoint folder")
    return path


def one_line(wrong: BaseException, name: str) -> str:
    text = " ".join(str(wrong).split())
    return text if isinstance(wrong, BadInput) else f"{name}: {text}"
