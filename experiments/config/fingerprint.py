"""What a job is: its resolved config, without what only says how and where it is carried out, and the fingerprint of that."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.io import PROJECT, fingerprint

ASIDE = {"launcher", "resume", "report", "cache_dir"}  # no result depends on them


def resolved(config: DictConfig) -> dict[str, Any]:
    """Plain values, every reference resolved; files of the project relative to it, so that a config is the same everywhere."""
    values: Any = OmegaConf.to_container(config, resolve=True)
    return {name: _portable(value) for name, value in values.items() if name not in ASIDE}


def fingerprint_of(config: DictConfig) -> str:
    """16 hex digits."""
    return fingerprint(resolved(config))


def _portable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _portable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value.replace(f"{PROJECT}/", "") if isinstance(value, str) else value
