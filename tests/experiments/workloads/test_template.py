"""N04: our rendering of chat templates against transformers', construct by construct."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from experiments.assets import MODELS
from experiments.config.checks import BadInput
from experiments.workloads.chat import asks_for_date, chat_of
from experiments.workloads.template import Template

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
CHAT = [
    {"role": "system", "content": "  Be brief & <kind>.\n"},
    {"role": "user", "content": "Où est «le chat»? 'x' \"y\" </b> \U0001f408"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nLà."},
    {"role": "user", "content": "Merci"},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says é < & > 'q' \"w\"",
            "parameters": {"type": "object", "properties": {"b": {}, "a": {"type": "string"}}},
        },
    }
]
EACH = "{% for m in messages %}"
CONSTRUCTS: dict[str, str] = {
    "generation": EACH + "{% if m.role == 'assistant' %}{% generation %}\n{{ m.content }}\n"
    "{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "generation_scope": "{% set x = 'a' %}{% generation %}{% set x = 'b' %}{{ x }}"
    "{% endgeneration %}{{ x }}",
    "generation_trimmed": EACH + "  {%- generation -%}  {{ m.role }}  {%- endgeneration -%}  "
    "{% endfor %}",
    "tools": "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    "{{ tools[0].function.parameters.properties | tojson(indent=2) }}{% endif %}",
    "no_tools": "{{ tools is none }}{{ tools is defined }}{{ documents is not none }}"
    "{% if tools is not none %}tools!{% endif %}",
    "undefined": "{{ system_prompt is defined }}[{{ nobody }}]{{ add_generation_prompt }}"
    "{{ enable_thinking is defined and enable_thinking is false }}",
    "loop_controls": EACH + "{% if loop.first %}{% continue %}{% endif %}{{ m.role }}"
    "{% if loop.index0 == 2 %}{% break %}{% endif %}{% endfor %}",
    "loop_names": EACH + "{{ loop.index }}/{{ loop.length }}{{ loop.last }}{{ loop.revindex }}"
    "{{ loop.previtem.role if loop.previtem is defined }}{{ loop.cycle('a', 'b') }}"
    "{% else %}none{% endfor %}",
    "namespace": "{% set ns = namespace(found=false, self=1) %}" + EACH + "{% if m.role == 'user' "
    "%}{% set ns.found = m.content | length %}{% endif %}{% endfor %}{{ ns.found }}{{ ns.self }}",
    "namespace_underscore": "{% set ns = namespace(_x=1) %}{{ ns._x }}",
    "namespace_underscore_later": "{% set ns = namespace() %}{% set ns._x = 1 %}ok",
    "macro": "{% macro turn(role, text='-') %}<{{ role }}>{{ text | trim }}{{ caller() if caller "
    "}}{% endmacro %}" + EACH + "{{ turn(m.role, m['content']) }}{% endfor %}{{ turn(role='x') }}"
    "{% call turn('y') %}inner{% endcall %}",
    "tojson": EACH + "{{ m | tojson }}{{ m.content | tojson(ensure_ascii=True) }}"
    "{{ m | tojson(sort_keys=true, separators=(',', ':')) }}{% endfor %}",
    "whitespace": "{% for m in messages %}\n    {% if true %}\n  {{ m.role }}\n    {% endif %}\n"
    "\t{#- note -#}\n  {%+ if true +%}\n x\n  {%- endif %}\n{% endfor %}\n\n",
    "whitespace_control": "a\n{{- ' b ' -}}\n\n c {%- set x = 1 -%} d\n{{ x }}\n",
    "raise_exception": "{{ raise_exception('Roles must alternate: é') }}",
    "raise_in_branch": "{% if messages[0].role != 'user' %}{{ raise_exception('no system') }}"
    "{% endif %}",
    "special_tokens": "{{ bos_token }}" + EACH + "{{ m.content + eos_token }}{% endfor %}"
    "{{ unk_token }}{{ pad_token }}[{{ sep_token }}]",
    "generation_prompt": EACH + "<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    "string_methods": EACH + "{{ m.content.strip().upper().split()[0] }}{{ m.role.title() }}"
    "{{ m.content.startswith('  Be') }}{{ m.content.replace('e', 'é').rstrip('\n') }}"
    "{{ '%s-%05.1f' % (m.role, 2) }}{{ '{:>9}'.format(m.role) }}{{ m.role ~ 1 }}{% endfor %}",
    "think_split": EACH + "{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1]"
    ".lstrip('\\n') }}{{ m.content.partition('</think>')[0] }}{% endif %}{% endfor %}",
    "slices": "{{ messages[1:] | length }}{{ messages[-1].content[::-1] }}{{ messages[:-1] | map("
    "attribute='role') | join(',') }}{{ messages[::2] | last | tojson }}",
    "selectattr": "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') "
    "| list | tojson }}{{ messages | rejectattr('role', 'eq', 'user') | list | count }}"
    "{{ (messages | groupby('role') | first).grouper }}",
    "filters": "{{ messages[1].content | escape }}{{ messages[0].content | indent(2) }}{{ [3, 1] | "
    "sort }}{{ none | default('d') }}{{ nothing | default('d') }}{{ {'b': 1, 'a': 2} | dictsort }}"
    "{{ 'a' | safe }}{{ messages | string | length }}{{ {'k': 1}.items() | list }}{{ 3.7 | int }}",
    "tests": "{{ messages is iterable }}{{ 'a' is string }}{{ {} is mapping }}{{ 1 is number }}"
    "{{ true is boolean }}{{ messages is sequence }}{{ none is none }}{{ 3 is odd }}"
    "{{ 'a' in 'abc' }}{{ 1 is sameas 1 }}{{ 4 is divisibleby 2 }}",
    "dict": "{{ dict(a=1).a }}{{ dict.fromkeys(['x'], 1) }}{{ dict([('y', 2)]) | tojson }}",
    "sandbox_class": "{{ ''.__class__ }}",
    "sandbox_dict": "{{ dict.__mro__ }}[{{ dict.mro() }}]",
    "sandbox_mutation": "{{ messages.append(1) }}",
    "fault": "{{ messages[0].content + 1 }}",
    "range_and_joiner": "{% set c = joiner(', ') %}{% for i in range(3) %}{{ c() }}{{ i }}"
    "{% endfor %}{{ cycler('a', 'b').next() }}{{ lipsum is defined }}",
    "set_block": "{% set t %}  {{ messages[0].role }}\n{% endset %}[{{ t }}]{{ t | trim }}"
    "{% filter upper %}x{{ t }}{% endfilter %}{% with a = 1 %}{{ a }}{% endwith %}",
    "raw_and_comments": "{% raw %}{{ x }}{% endraw %}{# {% generation %} #}{{ '{%' }}",
    "date": "{{ strftime_now('%d %B %Y, %a') }}{% if strftime_now is defined %}!{% endif %}",
}


@pytest.fixture(scope="module")
def theirs() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(MODELS / "tiny_qwen", **SPECIAL)


def outcome(render: Any) -> str:
    """The text, or that there is none: the words of a refusal are the template's own alone."""
    try:
        return str(render())
    except Exception as wrong:
        return "refused: Roles must alternate: é" if "Roles must" in str(wrong) else "refused"


@pytest.mark.parametrize("tools", [None, TOOLS], ids=["no_tools", "tools"])
@pytest.mark.parametrize("ask", [True, False], ids=["ask", "told"])
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_N04_a_template_renders_as_transformers(
    theirs: PreTrainedTokenizerBase, name: str, ask: bool, tools: Any
):
    def reference() -> str:
        return theirs.apply_chat_template(
            CHAT,
            chat_template=CONSTRUCTS[name],
            tools=tools,
            tokenize=False,
            add_generation_prompt=ask,
        )

    def ours() -> str:
        template = Template(CONSTRUCTS[name], date.today())
        return template.render(CHAT, add_generation_prompt=ask, tools=tools, **SPECIAL)

    assert outcome(ours) == outcome(reference)


def write(folder: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / name).write_text(text, encoding="utf-8")


ASKED = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
PLACES: dict[str, dict[str, Any]] = {
    "tokenizer_config": {"tokenizer_config.json": {"chat_template": ASKED, "eos_token": "</s>"}},
    "file": {
        "tokenizer_config.json": {
            "chat_template": "no",
            "eos_token": {"__type": "AddedToken", "content": "</s>"},
        },
        "chat_template.jinja": ASKED,
    },
    "named": {
        "tokenizer_config.json": {
            "eos_token": "</s>",
            "chat_template": [
                {"name": "tool_use", "template": "no"},
                {"name": "default", "template": ASKED},
            ],
        }
    },
    "more_files": {
        "tokenizer_config.json": {"eos_token": "</s>"},
        "chat_template.jinja": ASKED,
        "additional_chat_templates/tool_use.jinja": "no",
    },
    "older_special_tokens": {
        "tokenizer_config.json": {"chat_template": ASKED, "eos_token": "</x>"},
        "special_tokens_map.json": {"eos_token": {"content": "</s>", "lstrip": False}},
    },
    "older_that_do_not_count": {
        "tokenizer_config.json": {
            "chat_template": ASKED,
            "eos_token": "</s>",
            "added_tokens_decoder": {},
        },
        "special_tokens_map.json": {"eos_token": "</x>"},
    },
    "no_special_tokens": {"chat_template.jinja": ASKED},
}


@pytest.mark.parametrize("place", PLACES)
def test_N04_template_and_special_tokens_are_found_where_transformers_finds_them(
    tmp_path: Path, place: str
):
    tokenizer = (MODELS / "tiny_qwen" / "tokenizer.json").read_text(encoding="utf-8")
    write(tmp_path, {"tokenizer.json": tokenizer, "config.json": {"model_type": "qwen3"}})
    write(tmp_path, PLACES[place])
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    if place == "no_special_tokens":  # there the class has one of its own
        theirs.eos_token = None
    wanted = theirs.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    render = chat_of(tmp_path, "on", date.today())
    assert render is not None
    assert render("hi") == wanted


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"chat_template.jinja": "{% for %}"}, "cannot be read"),
        (
            {"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "x"}]}},
            "is one of several, rag, expected one called default",
        ),
        (
            {"chat_template.jinja": "version https://git-lfs.github.com/spec/v1\n"},
            r"chat_template\.jinja is a Git LFS pointer",
        ),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, files: dict[str, Any], named: str
):
    write(tmp_path, files)
    with pytest.raises(BadInput, match=named) as caught:
        chat_of(tmp_path, "auto", date.today())
    assert "\n" not in str(caught.value)


def test_N03_a_template_gets_the_date_that_it_is_given(tmp_path: Path):
    write(
        tmp_path, {"chat_template.jinja": "{{ strftime_now('%d %b %Y') }} {{ messages[0].role }}"}
    )
    render = chat_of(tmp_path, "auto", date(2024, 7, 26))
    assert render is not None
    assert render("hi") == "26 Jul 2024 user"
    assert asks_for_date(tmp_path, "auto")
    assert not asks_for_date(tmp_path, "off")
    write(tmp_path, {"chat_template.jinja": "{# strftime_now #}{{ 'strftime_now(1)' }}"})
    assert not asks_for_date(tmp_path, "auto")
    assert not asks_for_date(tmp_path / "nowhere", "auto")
