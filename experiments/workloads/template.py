"""Chat templates as transformers renders them: the same tags, filters, names and whitespace."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.nodes import CallBlock, Name, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

DATE = "strftime_now"  # what a template calls to write today's date


class Template:
    """today: what strftime_now writes, at midnight.

    Raises ValueError, one line, where the source is no template.
    """

    def __init__(self, source: str, today: date) -> None:
        self._environment = ChatEnvironment(today)
        self._source = source
        try:
            self._compiled = self._environment.from_string(source)
        except TemplateError as wrong:
            raise ValueError(f"cannot be read: {wrong}") from wrong

    @property
    def asks_for_date(self) -> bool:
        names = self._environment.parse(self._source).find_all(Name)
        return any(one.name == DATE for one in names)

    def render(self, messages: Sequence[Mapping[str, Any]], **values: Any) -> str:
        """values: special tokens, and what a caller of transformers' apply_chat_template may give.

        Raises ValueError, whatever goes wrong in the template.
        """
        given = {"tools": None, "documents": None, "add_generation_prompt": False} | values
        try:
            return self._compiled.render(messages=messages, **given)
        except Exception as wrong:  # it is a program of somebody else's
            why = (
                str(wrong)
                if isinstance(wrong, TemplateError)
                else f"{type(wrong).__name__}: {wrong}"
            )
            raise ValueError(f"the chat template refuses the prompt: {why}") from wrong


class ChatEnvironment(ImmutableSandboxedEnvironment):
    def __init__(self, today: date) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        self.filters["tojson"] = _to_json
        self.globals |= {
            "raise_exception": _refuse,
            DATE: today.strftime,
            "dict": ChatDict(),
            "namespace": ChatNamespace,
        }


class GenerationTag(Extension):
    """`{% generation %}` marks what an assistant wrote: for training, without effect on the text.

    As there, it is a scope of its own.
    """

    tags = {"generation"}  # noqa: RUF012 - as the base class declares it

    def parse(self, parser: Parser) -> Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_whole"), [], [], body).set_lineno(line)

    def _whole(self, caller: Any) -> str:
        return str(caller())


class ChatDict:
    """`dict` without the class itself, which a template could get out by."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class ChatNamespace(Namespace):
    """`namespace` without names that begin with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that one may be called `self`
        for name in dict(*args[1:], **kwargs):
            _check_name(name)
        Namespace.__init__(*args, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot hold {name!r}")


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without Jinja's own escapes of HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
