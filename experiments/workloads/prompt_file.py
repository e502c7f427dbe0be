"""Workloads: prompts, priorities and arrivals become requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from experiments.config.checks import BadInput, choice, integer, integers, number
from experiments.workloads.arrivals import KINDS, with_arrivals
from mtp.request import Request

MOST = 2**31 - 1  # the device's tables are int32
FIELDS = {
    "id",
    "prompt",
    "prompt_ids",
    "priority",
    "seed",
    "arrival_s",
    "max_new_tokens",
    "min_new_tokens",
    "stop_ids",
    "ignore_stop",
}
NOTES = {"source", "licence"}  # of the shipped files
UNSUPPORTED = {
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
}


@dataclass(frozen=True)
class PromptFile:
    """A JSONL file, one request per line."""

    path: str
    requests: int | None = None  # lines taken from the top; None: all
    arrivals: str = "file"  # this, `rate` and `trace`: see `arrival_times`
    rate: float | None = None
    trace: str | None = None
    chat: str = "auto"  # see `chat_of`
    date: str | None = None  # ISO, for a chat template that asks; None: today's
    priorities: list[int] | None = None  # given in turn to the lines; None: each line's own

    def __post_init__(self) -> None:
        if self.priorities is not None:
            integers("workload.priorities", self.priorities, 0)
        choice("workload.arrivals", self.arrivals, KINDS)
        choice("workload.chat", self.chat, ("auto", "on", "off"))
        if self.date is not None and not _is_date(self.date):
            raise BadInput(f"workload.date is {self.date!r}, expected a date like 2026-12-01")
        if self.requests is not None:
            integer("workload.requests", self.requests, 1)
        if not Path(self.path).is_file():
            raise BadInput(f"workload.path is {self.path}, expected an existing .jsonl file")

    def load(
        self, encode: Callable[[str], list[int]], *, max_new_tokens: int, seed: int
    ) -> list[Request]:
        """The requests. A bad line is named by its number; max_new_tokens and seed hold where a
        line names none."""
        lines = Path(self.path).read_bytes().split(b"\n")
        numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if self.requests is not None and self.requests > len(numbered):
            raise BadInput(
                f"workload.requests is {self.requests}, expected at most {len(numbered)} (the "
                f"prompts in {self.path})"
            )
        chosen = numbered[: self.requests]
        if not chosen:
            raise BadInput(
                f"workload.path {self.path} holds no requests, expected at least one line"
            )
        requests: dict[str, Request] = {}  # by id
        for number_, line in chosen:
            try:
                request = _request(json.loads(line.decode()), number_, encode, max_new_tokens, seed)
                if request.id in requests:
                    raise ValueError(f"id {request.id!r} occurs twice")
            except (ValueError, TypeError) as wrong:
                raise BadInput(f"{self.path}, line {number_}: {_one_line(wrong)}") from wrong
            requests[request.id] = request
        return with_arrivals(
            [*requests.values()],
            kind=self.arrivals,
            rate=self.rate,
            trace=self.trace,
            priorities=self.priorities,
            seed=seed,
        )


def _request(
    fields: Any, line: int, encode: Callable[[str], list[int]], max_new_tokens: int, seed: int
) -> Request:
    if not isinstance(fields, dict):
        raise ValueError("expected an object")
    if unsupported := sorted(UNSUPPORTED & fields.keys()):
        raise ValueError(f"{', '.join(unsupported)}: not supported yet, decoding is greedy")
    if unknown := sorted(fields.keys() - FIELDS - NOTES):
        raise ValueError(
            f"unknown field {unknown[0]!r}, expected some of {', '.join(sorted(FIELDS))}"
        )
    if ("prompt" in fields) == ("prompt_ids" in fields):
        raise ValueError("expected either prompt or prompt_ids")
    if "prompt" in fields:
        if not isinstance(fields["prompt"], str):
            raise ValueError(f"prompt is {fields['prompt']!r}, expected text")
        prompt = encode(fields["prompt"])
    else:
        prompt = _ids("prompt_ids", fields["prompt_ids"])
    ignore_stop = fields.get("ignore_stop", False)
    if not isinstance(ignore_stop, bool):
        raise ValueError(f"ignore_stop is {ignore_stop!r}, expected true or false")
    name = str(fields.get("id", f"line-{line}"))
    name.encode()  # a lone surrogate could not be written out
    return Request(
        id=name,
        prompt=tuple(prompt),
        max_new_tokens=integer(
            "max_new_tokens", fields.get("max_new_tokens", max_new_tokens), 1, MOST
        ),
        priority=integer("priority", fields.get("priority", 1), 0),
        arrival_s=number("arrival_s", fields.get("arrival_s", 0), 0),
        stop_ids=frozenset(_ids("stop_ids", fields.get("stop_ids", []))),
        min_new_tokens=integer("min_new_tokens", fields.get("min_new_tokens", 0), 0),
        ignore_stop=ignore_stop,
        seed=integer("seed", fields.get("seed", seed), 0),
    )


def _is_date(text: object) -> bool:
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _ids(name: str, value: Any) -> list[int]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {value!r}, expected a list of token ids")
    return [integer(name, token, 0, MOST) for token in value]


def _one_line(wrong: Exception) -> str:
    if isinstance(wrong, json.JSONDecodeError):
        return f"not JSON: {wrong.msg} at column {wrong.colno}"
    return " ".join(str(wrong).split())
