"""Parity: what counts as a difference, and what is never kept as a reference."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir

from experiments import resolvers
from experiments.parity import Plain, compare
from experiments.plan import plan_of
from experiments.reference import plain_tokens
from experiments.run import CONFIGS
from experiments.setup import setup
from mtp.request import Finished


def done(name, tokens, finish="length"):
    return Finished(name, (1,), tuple(tokens), finish)


REFERENCE = {"a": Plain([1, 2, 3], "length"), "b": Plain([4, 7], "stop")}


@pytest.mark.parametrize(
    ("finished", "difference"),
    [
        ([done("a", [1, 2, 3]), done("b", [4, 7], "stop")], None),
        ([done("a", [1, 2], "cancelled"), done("b", [], "error")], None),
        ([done("a", [1, 9, 3]), done("b", [4, 7], "stop")], {"request": "a", "index": 1, "plain": 2, "run": 9}),
        ([done("a", [1, 2]), done("b", [4, 7], "stop")], {"request": "a", "index": 2, "plain": 3, "run": None}),
        ([done("a", [1, 2, 3, 4]), done("b", [4, 7], "stop")], {"request": "a", "index": 3, "plain": None, "run": 4}),
        ([done("a", [1, 2, 3])], {"request": "b", "index": 0, "plain": 4, "run": None}),
        ([done("a", [1, 2, 3]), done("b", [4, 7])], {"request": "b", "index": 2, "plain": "stop", "run": "length"}),
    ],
)
def test_every_request_tokens_and_finish_count(finished, difference):
    parity = compare(REFERENCE, finished)
    assert parity.first_difference == difference
    assert parity.exact == (difference is None)


def test_a_reference_that_fails_is_not_kept(tmp_path):
    resolvers.register()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        made = setup(plan_of(config := compose("run", overrides=["max_new_tokens=4", "workload.requests=1", "device=cpu"])), config)
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
    with pytest.raises(RuntimeError, match=r"plain reference of request .* failed: RuntimeError: device lost"):
        plain_tokens(made, folder, tmp_path)
    made.target.verify = sound
    (plain,) = plain_tokens(made, folder, tmp_path).values()
    assert len(plain.tokens) == 4
