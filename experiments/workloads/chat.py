"""Chat templates: a prompt becomes what the checkpoint's tokenizer wants to see of a
conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from experiments.config.checks import BadInput

Render = Callable[[str], str]


def chat_of(folder: Path, mode: str) -> Render | None:
    """How a prompt is rendered. mode: `auto` (with the checkpoint's template where it has one),
    `on` (refused without one), `off`.

    Raises BadInput: no template although asked for, or one that cannot be read."""
    if mode == "off":
        return None
    source, special = _template(folder)
    if source is None:
        if mode == "on":
            raise BadInput(
                f"workload.chat is on, but {folder} has no chat template, expected auto or off"
            )
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        template = environment.from_string(source)
    except TemplateError as wrong:
        raise BadInput(f"the chat template of {folder} cannot be read: {wrong}") from wrong

    def render(prompt: str) -> str:
        messages = [{"role": "user", "content": prompt}]
        try:
            return template.render(messages=messages, add_generation_prompt=True, **special)
        except TemplateError as wrong:
            raise ValueError(f"the chat template refuses the prompt: {wrong}") from wrong

    return render


def _template(folder: Path) -> tuple[str | None, dict[str, Any]]:
    """The template's text, and the special tokens it may name."""
    settings_file = folder / "tokenizer_config.json"
    settings = (
        json.loads(settings_file.read_text(encoding="utf-8")) if settings_file.exists() else {}
    )
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    special = {name: _text(settings[name]) for name in names if settings.get(name) is not None}
    own_file = folder / "chat_template.jinja"
    if own_file.exists():
        return own_file.read_text(encoding="utf-8"), special
    template = settings.get("chat_template")
    if isinstance(template, list):  # several named ones
        template = next((one["template"] for one in template if one.get("name") == "default"), None)
    return template, special


def _text(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token


def _refuse(message: str) -> None:
    raise TemplateError(message)
