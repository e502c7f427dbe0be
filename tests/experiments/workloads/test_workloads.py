"""Prompt files: what a line may hold, and how a bad one is named."""

from __future__ import annotations

import json

import pytest

from experiments.config.checks import BadInput
from experiments.workloads.prompt_file import PromptFile


def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def load(tmp_path, *lines, requests=None):
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return PromptFile(str(path), requests).load(encode, max_new_tokens=9, seed=5)


def test_every_field_reaches_its_request(tmp_path):
    line = {
        "id": "a",
        "prompt_ids": [4, 5],
        "priority": 3,
        "seed": 8,
        "arrival_s": 1.5,
        "max_new_tokens": 6,
        "min_new_tokens": 2,
        "stop_ids": [7, 7, 8],
        "ignore_stop": True,
    }
    (request,) = load(tmp_path, line)
    assert request.prompt == (4, 5)
    assert request.stop_ids == {7, 8}
    for name in (
        "id",
        "priority",
        "seed",
        "arrival_s",
        "max_new_tokens",
        "min_new_tokens",
        "ignore_stop",
    ):
        assert getattr(request, name) == line[name]


def test_text_is_encoded_and_defaults_hold(tmp_path):
    first, second = load(
        tmp_path, {"prompt": "ab"}, "", {"prompt": "c", "source": "x", "licence": "MIT"}
    )
    assert (first.id, first.prompt, first.max_new_tokens, first.seed) == ("line-1", (97, 98), 9, 5)
    assert second.id == "line-3"


def test_requests_takes_them_from_the_top(tmp_path):
    assert [
        request.id for request in load(tmp_path, {"prompt": "a"}, {"prompt": "b"}, requests=1)
    ] == ["line-1"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "expected an object"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt_ids": []}, "the prompt is empty"),
        ({"prompt": "a", "prompt_ids": [1]}, "either prompt or prompt_ids"),
        ({}, "either prompt or prompt_ids"),
        ({"prompt": 3}, "prompt is 3, expected text"),
        ({"prompt_ids": [1.5]}, "prompt_ids is 1.5, expected an integer"),
        ({"prompt_ids": "12"}, "expected a list of token ids"),
        ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens is 0, expected an integer, 1 to"),
        ({"prompt": "a", "max_new_tokens": True}, "max_new_tokens is true"),
        (
            {"prompt": "a", "min_new_tokens": 10},
            "min_new_tokens is 10, expected 0 to max_new_tokens",
        ),
        ({"prompt": "a", "arrival_s": -1}, "arrival_s is -1"),
        ({"prompt": "a", "arrival_s": float("nan")}, "arrival_s is nan"),
        ({"prompt": "a", "ignore_stop": 1}, "ignore_stop is 1, expected true or false"),
        ({"prompt": "a", "temperature": 0.7}, "temperature: not supported yet"),
        ({"prompt": "a", "logprobs": 1}, "logprobs: not supported yet"),
        ({"prompt": "a", "promt": "b"}, "unknown field 'promt'"),
        (
            {"prompt": "a", "stop_ids": [3_000_000_000]},
            "stop_ids is 3000000000, expected an integer, 0 to 2147483647",
        ),
        ({"prompt": "a", "max_new_tokens": 3_000_000_000}, "max_new_tokens is 3000000000"),
        ('{"id": "\\ud800", "prompt": "a"}', "surrogates not allowed"),
        ({"id": "line-1", "prompt": "a"}, "id 'line-1' occurs twice"),
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path, line, message):
    with pytest.raises(BadInput, match="line 2: ") as refused:
        load(tmp_path, {"prompt": "a"}, line)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_requests_and_no_file_are_refused(tmp_path):
    with pytest.raises(BadInput, match="holds no requests"):
        load(tmp_path, "")
    with pytest.raises(BadInput, match=r"workload\.path is .*nowhere"):
        PromptFile(str(tmp_path / "nowhere"))
    with pytest.raises(BadInput, match=r"workload\.requests is 0, expected an integer, at least 1"):
        load(tmp_path, {"prompt": "a"}, requests=0)
    with pytest.raises(BadInput, match=r"workload\.requests is 2, expected at most 1"):
        load(tmp_path, {"prompt": "a"}, requests=2)


def test_a_thousand_requests(tmp_path):
    assert len(load(tmp_path, *({"prompt": "a"} for _ in range(1000)))) == 1000


def test_a_line_separator_inside_a_prompt_is_text_and_a_line_in_another_encoding_is_named(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    (request,) = PromptFile(str(path)).load(encode, max_new_tokens=9, seed=5)
    assert request.prompt == (97, 0x2028, 98)
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "\xe9"}\n')
    with pytest.raises(BadInput, match="line 2: 'utf-8' codec can't decode"):
        PromptFile(str(path)).load(encode, max_new_tokens=9, seed=5)
