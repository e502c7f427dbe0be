"""Every key of config.json is followed as transformers follows it, or refused in one line that
names it: random values of random keys, by family."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from mtp.targets import load_target
from tests.support.config_variants import (
    EVERYWHERE,
    FAMILIES,
    SHAPES,
    SIZES,
    Variants,
    changed,
)

TEXT = torch.randint(0, 64, (24,), generator=torch.Generator().manual_seed(0))
TOLERANCE = 1e-4
MANY = 30  # random cases of a family


class Written(NamedTuple):
    folder: Path
    family: Variants
    config: dict[str, Any]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    made = {}
    for name, family in FAMILIES.items():
        folder = family.write(tmp_path_factory.mktemp(name), **{**SIZES, **family.config})
        config = json.loads((folder / "config.json").read_text())
        made[name] = Written(folder, family, changed(config, family.start))
    return made


def theirs(one: Written) -> Tensor | None:
    """None: transformers cannot load it whole."""
    try:
        model, report = one.family.reference.from_pretrained(
            one.folder, output_loading_info=True, dtype=torch.float32
        )
        if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
            return None
        with torch.inference_mode():
            return model.eval()(TEXT[None], use_cache=False).logits[0]
    except Exception:
        return None


def ours(one: Written) -> Tensor | str:
    """Logits, or the line that refuses."""
    try:
        target = load_target(one.folder, slots=1, context=len(TEXT), dtype=torch.float32)
    except ValueError as wrong:
        return str(wrong)
    return target.logits(target.prefill(0, TEXT, 0)[1])


def fault_of(one: Written, values: dict[str, Any]) -> str | None:
    """What is wrong with how we read a config with these values."""
    (one.folder / "config.json").write_text(json.dumps(changed(one.config, values)))
    mine, reference = ours(one), theirs(one)
    if isinstance(mine, str):
        assert "\n" not in mine
        named = any(key in mine for key in keys_in(values))
        return None if named or reference is None else f"refused without the key: {mine}"
    if reference is None:  # an explicit null, as absent here, is of no type that it allows
        nulls = any(value is None or value == {} for value in values.values())
        return None if nulls else "served, but transformers cannot load it"
    far = (mine - reference).abs().max().item()
    return f"logits are {far:.2g} apart" if not far < TOLERANCE else None


def keys_in(values: dict[str, Any]) -> Iterator[str]:
    for key, value in values.items():
        yield key
        if isinstance(value, dict):
            yield from keys_in(value)


def some_of(family: Variants, seed: int, count: int) -> Iterator[dict[str, Any]]:
    """One to three keys at a time, and none that the tensors would contradict at once."""
    chance, values = random.Random(seed), EVERYWHERE | family.values
    for _ in range(count):
        keys = chance.sample(sorted(values), chance.choice([1, 2, 2, 3]))
        yield {key: chance.choice(values[key]) for key in keys}


def faults(one: Written, cases: Iterable[dict[str, Any]]) -> str:
    return "\n".join(f"{case}: {fault}" for case in cases if (fault := fault_of(one, case)))


@pytest.mark.parametrize("name", FAMILIES)
def test_some_keys(written: dict[str, Written], name: str):
    assert fault_of(written[name], {}) is None
    assert not faults(written[name], some_of(FAMILIES[name], 0, 16))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_key_and_many_together(written: dict[str, Written], name: str):
    family = FAMILIES[name]
    every = [
        {key: value}
        for key, values in {**SHAPES, **EVERYWHERE, **family.values}.items()
        for value in values
    ]
    assert not faults(written[name], [*every, *some_of(family, 1, MANY)])


OUTSIDE = [
    {"rms_norm_eps": 0.5},
    {"rope_theta": 50.0},
    {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"attention_bias": True},
    {"partial_rotary_factor": 0.5},
    {"hidden_act": "gelu"},
    {"sliding_window": 2},
    {"final_logit_softcapping": 1.0},
    {"quantization_config": {"quant_method": "gptq"}},
]


@pytest.mark.parametrize("values", OUTSIDE, ids=str)
@pytest.mark.parametrize("name", ["qwen3_5", "gemma3_of_old"])
def test_keys_beside_a_text_part_are_not_of_the_text(
    written: dict[str, Written], name: str, values: dict[str, Any]
):
    """As transformers reads them: but for what is of the whole model."""
    one = written[name]
    text = {key: value for key, value in one.config.items() if key != "rms_norm_eps"}
    (one.folder / "config.json").write_text(json.dumps(text))
    plain = ours(one)
    nested = {"model_type": text["model_type"].removesuffix("_text"), "text_config": text}
    (one.folder / "config.json").write_text(json.dumps(nested | values))
    beside = ours(one)
    if "quantization_config" in values:
        assert "quantization_config is set" in beside
    else:
        assert torch.equal(beside, plain)
