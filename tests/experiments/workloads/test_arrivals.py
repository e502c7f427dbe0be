"""Arrival patterns and chat templates."""

from __future__ import annotations

import json
from datetime import date

import pytest

from experiments.config.checks import BadInput
from experiments.workloads.arrivals import arrival_times
from experiments.workloads.chat import chat_of
from experiments.workloads.prompt_file import PromptFile


def times(kind, count=5, rate=None, trace=None, seed=0):
    return arrival_times(kind, count, rate=rate, trace=trace, seed=seed)


def test_poisson_arrivals_ascend_repeat_by_seed_and_have_their_rate():
    drawn = times("poisson", 4000, rate=20.0)
    assert drawn == sorted(drawn)
    assert drawn == times("poisson", 4000, rate=20.0)
    assert drawn != times("poisson", 4000, rate=20.0, seed=1)
    assert 4000 / drawn[-1] == pytest.approx(20, rel=0.1)


def test_at_once_file_and_trace(tmp_path):
    assert times("at_once") == [0.0] * 5
    assert times("file") is None
    (tmp_path / "trace").write_text("0\n0.5\n0.5\n2\n")
    assert times("trace", 3, trace=str(tmp_path / "trace")) == [0.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0\n1", "holds 2 times, expected at least 5"),
        ("0\nx", "'x' is no number"),
        ("2\n1", "time 2 is 1.0"),
        ("0\n-1", "time 2 is -1.0"),
    ],
)
def test_bad_traces_are_named(tmp_path, text, message):
    (tmp_path / "trace").write_text(text)
    with pytest.raises(BadInput, match=message):
        times("trace", trace=str(tmp_path / "trace"))


@pytest.mark.parametrize(
    ("kind", "message"), [("poisson", "workload.rate is null"), ("trace", "workload.trace is null")]
)
def test_what_a_kind_needs_is_asked_for(kind, message):
    with pytest.raises(BadInput, match=message):
        times(kind)
    with pytest.raises(BadInput, match=r"workload.rate is 0"):
        times("poisson", rate=0)


def test_times_reach_the_requests(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt_ids": [1], "arrival_s": 3}\n' * 2)
    load = {"max_new_tokens": 1, "seed": 0}
    own = PromptFile(str(path)).load(list, **load)
    assert [request.arrival_s for request in own] == [3, 3]
    drawn = PromptFile(str(path), arrivals="poisson", rate=1.0).load(list, **load)
    assert [request.arrival_s for request in drawn] == times("poisson", 2, rate=1.0)
    with pytest.raises(BadInput, match=r"workload\.arrivals is 'never'"):
        PromptFile(str(path), arrivals="never")


DAY = date(2026, 12, 1)
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("place", ["config", "named", "file"])
def test_a_checkpoints_chat_template_is_applied(tmp_path, place):
    settings = {"eos_token": {"content": "</s>"}}
    if place == "file":
        (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    else:
        settings["chat_template"] = (
            TEMPLATE if place == "config" else [{"name": "default", "template": TEMPLATE}]
        )
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    assert chat_of(tmp_path, "auto", DAY)("hi") == "<user>hi</s><assistant>"
    assert chat_of(tmp_path, "off", DAY) is None


def test_without_a_template_auto_is_off_and_on_is_refused(tmp_path):
    assert chat_of(tmp_path, "auto", DAY) is None
    with pytest.raises(BadInput, match="has no chat template"):
        chat_of(tmp_path, "on", DAY)
    (tmp_path / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(BadInput, match="cannot be read"):
        chat_of(tmp_path, "auto", DAY)


def test_a_template_that_refuses_names_its_reason(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no system prompt') }}")
    with pytest.raises(ValueError, match="refuses the prompt: no system prompt"):
        chat_of(tmp_path, "on", DAY)("hi")
