"""Parity: what counts as a difference, and what is never kept as a reference."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hydra import compose, initialize_config_dir

from experiments.config import resolvers
from experiments.run import CONFIGS
from experiments.runs import reference
from experiments.runs.model_runtime import ModelRuntime
from experiments.runs.parity import Difference, Plain, compare
from experiments.runs.reference import plain_tokens
from experiments.runs.setup import setup
from experiments.runs.spec import run_spec
from mtp.buckets import Buckets
from mtp.request import Finished, Request


def done(name, tokens, finish="length"):
    return Finished(name, (1,), tuple(tokens), finish)


REFERENCE = {"a": Plain([1, 2, 3], "length"), "b": Plain([4, 7], "stop")}


@pytest.mark.parametrize(
    ("finished", "difference"),
    [
        ([done("a", [1, 2, 3]), done("b", [4, 7], "stop")], None),
        ([done("a", [1, 2], "cancelled"), done("b", [], "error")], None),
        (
            [done("a", [1, 9, 3]), done("b", [4, 7], "stop")],
            {"request": "a", "index": 1, "plain": 2, "run": 9},
        ),
        (
            [done("a", [1, 2]), done("b", [4, 7], "stop")],
            {"request": "a", "index": 2, "plain": 3, "run": None},
        ),
        (
            [done("a", [1, 2, 3, 4]), done("b", [4, 7], "stop")],
            {"request": "a", "index": 3, "plain": None, "run": 4},
        ),
        ([done("a", [1, 2, 3])], {"request": "b", "index": 0, "plain": 4, "run": None}),
        (
            [done("a", [1, 2, 3]), done("b", [4, 7])],
            {"request": "b", "index": 2, "plain": "stop", "run": "length"},
        ),
    ],
)
def test_every_request_tokens_and_finish_count(finished, difference):
    parity = compare(REFERENCE, finished)
    assert parity.first_difference == difference
    assert parity.exact == (difference is None)


A_DIFFERS, BOTH_DIFFER = (
    [done("a", [1, 9, 3]), done("b", [4, 7], "stop")],
    [done("a", [1, 9, 3]), done("b", [5, 7], "stop")],
)


@pytest.mark.parametrize(
    ("finished", "plain", "gap", "label"),
    [
        (A_DIFFERS, A_DIFFERS, 0.1, "numerically equal"),
        (A_DIFFERS, BOTH_DIFFER, 0.1, "numerically equal"),
        (BOTH_DIFFER, A_DIFFERS, 0.1, "invalid"),  # more often than plain decoding in a batch
        (A_DIFFERS, [done("a", [1, 2, 3]), done("b", [4, 7], "stop")], 0.1, "invalid"),
        (A_DIFFERS, None, 0.1, "invalid"),  # plain decoding in a batch is not known
        (A_DIFFERS, A_DIFFERS, 0.126, "invalid"),  # no near tie
        # a text that is cut short is no rounding
        (
            [done("a", [1, 2]), done("b", [4, 7], "stop")],
            A_DIFFERS,
            0.0,
            "invalid",
        ),
        ([done("a", [1, 2, 3]), done("b", [4, 7])], A_DIFFERS, 0.0, "invalid"),
    ],
)
def test_tokens_that_differ_are_numerically_equal_only_at_near_ties_no_more_often_than_plain(
    finished, plain, gap, label
):
    parity = compare(REFERENCE, finished, plain=plain, gap=lambda _: gap, tolerance=0.125)
    assert parity.label == label
    assert not parity.exact
    assert parity.stats()["differing"] >= 1


def test_the_gap_is_the_targets_own_at_that_place(tmp_path):
    resolvers.register()
    overrides = [
        "max_new_tokens=6",
        "workload.requests=1",
        "device=cpu",
        "target.dtype=fp32",
        f"cache_dir={tmp_path}",
    ]
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        runtime = ModelRuntime(run_spec(config := compose("run", overrides=overrides)), config)
    reference = runtime.reference()
    (name, plain), target = next(iter(reference.items())), runtime._made.target
    text = torch.tensor([*runtime.requests[0].prompt, *plain.tokens[:3]], dtype=torch.int32)
    logits = target.prefill(0, text, 0)[0][0]
    target.clear(0)
    best, second = logits.topk(2).indices.tolist()
    assert best == plain.tokens[3]
    gap = runtime.gap(reference)
    found = gap(Difference(name, 3, best, second))
    assert found == pytest.approx(float(logits[best] - logits[second]))
    assert found > runtime.tolerance == 1e-3
    assert gap(Difference(name, 3, best, best)) == 0


def test_a_reference_that_fails_is_not_kept(tmp_path):
    resolvers.register()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        made = setup(
            run_spec(
                config := compose(
                    "run", overrides=["max_new_tokens=4", "workload.requests=1", "device=cpu"]
                )
            ),
            config,
        )
    folder = made.tokenizer and tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    sound, calls = made.target.verify, []

    def failing(window):
        calls.append(window)
        if len(calls) == 2:
            raise RuntimeError("device lost")
        return sound(window)

    made.target.verify = failing
    with pytest.raises(
        RuntimeError, match=r"plain reference of request .* failed: RuntimeError: device lost"
    ):
        plain_tokens(made, folder, tmp_path)
    made.target.verify = sound
    (plain,) = plain_tokens(made, folder, tmp_path).values()
    assert len(plain.tokens) == 4


def test_N06_a_kept_reference_is_known_by_all_that_its_tokens_depend_on(monkeypatch):
    """Prompt, tokenizer and chat template are the ids that they made."""
    limits = SimpleNamespace(context=64, stop_ids=frozenset({9}))
    target = SimpleNamespace(limits=limits, dtype=torch.float32)
    settings = SimpleNamespace(prefill_chunk=4, buckets=Buckets((4,)))
    setup = SimpleNamespace(
        spec=SimpleNamespace(settings=settings), target=target, device=torch.device("cpu")
    )
    request = Request("a", (1, 2), 8)

    def key(request=request, weights="w") -> str:
        return reference._key(setup, request, weights)

    first = key()
    assert key(Request("b", (1, 2), 8, priority=3, arrival_s=1.0)) == first
    keys = [first, key(weights="v")]
    for change in ({"prompt": (1, 3)}, {"seed": 1}, {"min_new_tokens": 2}, {"ignore_stop": True}):
        keys.append(key(replace(request, **change)))
    for place, name, value in (
        (limits, "context", 65),
        (limits, "stop_ids", frozenset({8})),
        (target, "dtype", torch.bfloat16),
        (settings, "prefill_chunk", 5),
        (settings, "buckets", Buckets((8,))),
        (reference, "code_digest", lambda *_: "other code"),
        (reference, "processor", lambda: "another processor"),
        (torch, "get_num_threads", lambda: 77),
        (torch, "__version__", "another"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key() == first
