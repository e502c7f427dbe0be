"""What a job is: its resolved config, without what only says how and where it is carried out, and
the fingerprint of that.

Classes and files that ship stand in it under stable names, so that moving them makes no finished
job run again: a `_target_` under the `_name_` beside it in the YAML that ships it, a shipped model,
prompt file or tape under its name. Any other class is known by its name and its file's content.
"""

from __future__ import annotations

import hashlib
import inspect
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from experiments.assets import MODELS, PROMPTS, TAPES
from experiments.io import PROJECT, fingerprint

ASIDE = {"launcher", "resume", "report", "cache_dir"}  # no result depends on them
NAME = "_name_"  # the key of a stable name
# folders that ship, by the name they stand under
SHIPPED = {"shipped": MODELS, "prompts": PROMPTS, "tapes": TAPES}


def resolved(config: DictConfig) -> dict[str, Any]:
    """Plain values, every reference resolved; files of the project relative to it, so that a
    config is the same everywhere."""
    values: Any = OmegaConf.to_container(config, resolve=True)
    return {name: _portable(value) for name, value in values.items() if name not in ASIDE}


def fingerprint_of(config: DictConfig) -> str:
    """16 hex digits."""
    return fingerprint(_stable(resolved(config)))


def _portable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _portable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value.replace(f"{PROJECT}/", "") if isinstance(value, str) else value


def _stable(value: Any) -> Any:
    """The same without code locations."""
    if isinstance(value, list):
        return [_stable(item) for item in value]
    if isinstance(value, str):
        return _shipped(value)
    if not isinstance(value, dict):
        return value
    rest = {name: _stable(item) for name, item in value.items() if name not in (NAME, "_target_")}
    if "_target_" not in value:
        return rest
    name, target = str(value.get(NAME)), value["_target_"]
    return rest | {"_target_": name if shipped_names().get(name) == target else content_of(target)}


def _shipped(text: str) -> str:
    """A path of what ships by the name of its folder: `shipped:tiny_qwen`, `prompts:code.jsonl`."""
    for name, folder in SHIPPED.items():
        if (path := PROJECT / text).is_relative_to(folder):
            return f"{name}:{path.relative_to(folder)}"
    return text


def content_of(target: str) -> str:
    """A class or function by its name and a hash of its file."""
    try:
        made = get_object(target)
        file = Path(str(inspect.getsourcefile(made)))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        return f"{made.__qualname__} {digest}"
    except Exception:  # what is wrong with it is reported where it is built
        return target


@cache
def shipped_names() -> dict[str, str]:
    """The target of every stable name in configs/."""
    found: dict[str, str] = {}

    def read(node: Any) -> None:
        if isinstance(node, dict):
            if NAME in node:
                found[node[NAME]] = node["_target_"]
            for item in node.values():
                read(item)

    for file in (PROJECT / "configs").rglob("*.yaml"):
        read(yaml.safe_load(file.read_text(encoding="utf-8")))
    return found


def without_names(node: DictConfig) -> DictConfig:
    """The node as `instantiate` takes it."""
    return OmegaConf.create(_unnamed(OmegaConf.to_container(node, resolve=True)))


def _unnamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unnamed(item) for name, item in value.items() if name != NAME}
    return [_unnamed(item) for item in value] if isinstance(value, list) else value
