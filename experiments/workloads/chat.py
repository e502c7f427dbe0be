"""Chat templates of checkpoints: a prompt becomes what the tokenizer wants to see of a
conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from experiments.config.checks import BadInput
from experiments.workloads.template import Template
from mtp.files import LFS_POINTER, is_lfs_pointer

Render = Callable[[str], str]
TOKENS = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


def chat_of(folder: Path, mode: str, today: date) -> Render | None:
    """How a prompt is rendered. mode: `auto` (with the checkpoint's template where it has one),
    `on` (refused without one), `off`. today: what a template that writes the date gets.

    Raises BadInput: no template although asked for, or one that cannot be read."""
    template = _template(folder, mode, today)
    if template is None:
        return None
    special = _special_tokens(folder)

    def render(prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        return template.render(messages, add_generation_prompt=True, **special)

    return render


def asks_for_date(folder: Path, mode: str) -> bool:
    """Whether prompts would depend on the day. Raises BadInput as `chat_of`."""
    template = _template(folder, mode, date.min)
    return template is not None and template.asks_for_date


def _template(folder: Path, mode: str, today: date) -> Template | None:
    if mode == "off":
        return None
    try:
        source = _source(folder)
        if source is not None:
            return Template(source, today)
    except ValueError as wrong:
        raise BadInput(f"the chat template of {folder} {wrong}") from wrong
    if mode == "on":
        raise BadInput(
            f"workload.chat is on, but {folder} has no chat template, expected auto or off"
        )
    return None


def _source(folder: Path) -> str | None:
    """As transformers finds it: files of their own come before tokenizer_config.json, and of
    several the one called `default` is meant."""
    files = sorted((folder / "additional_chat_templates").glob("*.jinja"))
    named: Any = {file.stem: _read(file) for file in files}
    if (own := folder / "chat_template.jinja").exists():
        named["default"] = _read(own)
    if not named:
        named = _json(folder / "tokenizer_config.json").get("chat_template")
    if named is None or isinstance(named, str):
        return named
    if isinstance(named, list):
        named = {one["name"]: one["template"] for one in named}
    if "default" not in named:
        raise ValueError(
            f"is one of several, {', '.join(sorted(named))}, expected one called default"
        )
    return str(named["default"])


def _special_tokens(folder: Path) -> dict[str, str]:
    """Those that a template may name, by name."""
    settings = _json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in settings:  # as older checkpoints have it
        settings |= _json(folder / "special_tokens_map.json")
    values = {f"{name}_token": settings.get(f"{name}_token") for name in TOKENS}
    return {
        name: str(value["content"] if isinstance(value, dict) else value)
        for name, value in values.items()
        if value is not None
    }


def _json(file: Path) -> dict[str, Any]:
    """Empty where there is no file."""
    values: Any = json.loads(_read(file)) if file.exists() else {}
    if not isinstance(values, dict):
        raise ValueError(f"cannot be read: {file.name} holds no object")
    return values


def _read(file: Path) -> str:
    if is_lfs_pointer(file):
        raise ValueError(f"cannot be read: {file.name} {LFS_POINTER}")
    return file.read_text(encoding="utf-8")
