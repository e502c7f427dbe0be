"""The engine benchmark: its arithmetic on invented times, and all of it, once, on a tiny random
pair that transformers can speed up too."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import count

import numpy as np
import pytest
import torch

from bench import engine, report
from bench.decoding import comparisons, rows_to_time
from bench.decoding import runs as decoding
from bench.decoding.alternating import alternate, differences, product
from bench.decoding.transformers_peer import (
    assistance,
    load_transformers,
    transformers_decoding,
)
from bench.rows import read_rows, row_of, write_rows_to
from experiments.assets import MODELS
from mtp.costs import LinearCost
from tests.support.checkpoints import write_qwen3
from tests.support.gemma_checkpoints import write_assistant, write_gemma4


def test_ways_take_turns_and_ratios_are_by_pair():
    calls = []

    def way(name, seconds):
        times = iter(seconds)
        return lambda: (calls.append(name), (next(times), {"0": (1, 2)}))[1]

    pairs = alternate(way("a", [9, 2.0, 4.0, 6.0]), way("b", [9, 1.0, 1.0, 3.0]), 3)
    assert "".join(calls) == "ab" + "ab" + "ba" + "ab"
    assert pairs.ratios.tolist() == [2, 4, 2]
    assert (
        product(pairs.ratios).middle,
        product(pairs.ratios).low,
        product(pairs.ratios).high,
    ) == (2, 2, 4)
    assert not differences(pairs.first, pairs.second)


def test_F04_of_what_cannot_be_shown_one_pair_is_timed():
    calls = []

    def way(name, token):
        return lambda: (calls.append(name), (1.0, {"0": (token,)}))[1]

    pairs = alternate(way("a", 1), way("b", 2), 50, lambda one, other: one == other)
    assert "".join(calls) == "ab" + "ab"
    assert (pairs.first, pairs.second) == ({"0": (1,)}, {"0": (2,)})


def test_a_way_that_does_not_repeat_itself_is_no_way():
    tokens = count()
    with pytest.raises(RuntimeError, match="gave other tokens"):
        alternate(lambda: (1.0, {"0": (next(tokens),)}), lambda: (1.0, {"0": (0,)}), 1)


def test_the_interval_of_a_product_holds_that_of_both_factors():
    noise = np.random.default_rng(1)
    a, b = 1.5 * noise.lognormal(0, 0.05, 99), 1.2 * noise.lognormal(0, 0.05, 99)
    both = product(a, b)
    assert both.middle == pytest.approx(np.median(a) * np.median(b))
    assert both.low < both.middle < both.high
    widths = [np.log(each.high / each.low) for each in (product(a), product(b), both)]
    assert max(widths[:2]) < widths[2] < sum(widths[:2])
    steady = product(a, [2.0] * 4)
    assert (steady.low, steady.high) == pytest.approx((2 * product(a).low, 2 * product(a).high))


def test_first_differences():
    first = {"0": (1, 2, 3), "1": (4, 5), "2": (6,)}
    second = {"0": (1, 9, 9), "1": (4,), "2": (6,)}
    assert differences(first, second) == [("0", 1), ("1", 1)]


def test_prefill_is_taken_off(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(decoding.time, "perf_counter", lambda: clock[0])

    # 5 s each of prefill, a window of 1 s of the first alone, 3 s for each further token of both, 1
    # s of the second
    def generate(
        new,
    ):
        clock[0] += 2 * 5 + 1 + 3 * (new - 2) + 1
        return {"0": (7,) * new, "1": (8,) * new}

    assert decoding.decoding(generate, 2, 11)() == (1.5, {"0": (7,) * 11, "1": (8,) * 11})


@pytest.mark.parametrize(
    ("requests", "rows", "depth", "names"),
    [
        (1, 8, 7, "1 2 3 7"),
        (4, 8, 7, "1 2 3"),
        (7, 8, 7, "1"),
        (8, 8, 7, ""),
        (8, 16, 7, "1 2 3 7"),
        (1, 8, 2, "1 2"),
    ],
)
def test_static_policies_are_those_that_find_rows(requests, rows, depth, names):
    found = comparisons.policies(requests, rows, depth, LinearCost())
    assert list(found) == [
        *(f"static_k_{name}" for name in names.split()),
        "rotate_grow",
        "adaptive",
    ]
    assert max(policy.depth for policy in found.values()) <= depth


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_qwen3(tmp_path_factory.mktemp("dense"), vocab_size=2048)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(MODELS / "tiny_qwen" / name, folder)
    return folder


SHORT = (
    "--requests 1,2 --rows 4 --tokens 6 --prompt 8 --pairs 1 --contexts 20 --seconds 1 --workloads "
    "code target.dtype=fp32"
)


def run(folder, out, monkeypatch, *more):
    monkeypatch.setattr(
        sys,
        "argv",
        [
            "engine",
            "--target",
            str(folder),
            "--drafter",
            str(folder),
            "--out",
            str(out),
            *SHORT.split(),
            *more,
        ],
    )
    try:
        return engine.main()
    except SystemExit as left:
        return left.code


def test_all_of_it_once(folder, tmp_path, monkeypatch, capsys):
    assert run(folder, tmp_path / "rows.jsonl", monkeypatch) == 0
    said = capsys.readouterr().out
    assert "transformers' assisted generation: use_mtp" in said
    rows = read_rows(tmp_path / "rows.jsonl")
    decode = {
        (row["implementation"], row["shape"]["requests"]): row
        for row in rows
        if row["operation"] == "decode"
    }
    policies = [
        "static_k_1",
        "static_k_2",
        "rotate_grow",
        "adaptive",
        "plain",
        "plain, beside transformers",
        "transformers",
    ]
    assert decode.keys() == {(name, n) for name in policies for n in (1, 2)} | {
        ("static_k_3", 1),
        ("transformers_assisted", 1),
    }
    assert {row["tokens"] for row in decode.values() if "tokens" in row} == {"exact"}
    for n in (1, 2):
        beside = decode["plain, beside transformers", n]
        best = decode[beside["best"].split()[0], n]
        assert beside["product"]["ratio"] == pytest.approx(
            beside["ratio"] * best["ratio"], rel=1e-3
        )
        assert best["ratio"] == max(
            row["ratio"]
            for row in decode.values()
            if row.get("to") == "plain" and row["shape"]["requests"] == n
        )
    assert {row["shape"]["dtype"] for row in rows} == {"fp32"}
    windows = [row for row in rows if row["operation"] == "window"]
    assert {(row["shape"]["rows"], row["shape"]["slots"]) for row in windows} == {
        (1, 1),
        (2, 1),
        (4, 1),
        (2, 2),
        (4, 2),
    }
    assert all(row["evidence"] in ("cpu", "gpu") and row["p20_us"] > 0 for row in rows)


def test_their_assisted_generation_is_tried_before_it_is_timed(folder, tmp_path):
    gemma = write_gemma4(tmp_path / "gemma")
    assistant = write_assistant(tmp_path / "assistant", gemma)
    model, text = load_transformers(gemma, torch.float32, torch.device("cpu")), (5, 6, 7, 8)
    options, said = assistance(model, gemma, assistant, text)
    assert said == "assistant_model"
    plain = transformers_decoding(model, [text])
    assert transformers_decoding(model, [text], **options)(9) == plain(9)
    assert assistance(model, gemma, None, text) == (
        None,
        "ValueError: this pair has no drafter with weights",
    )
    assert assistance(model, gemma, folder, text) == (
        None,
        "ValueError: its head lies outside the target's folder",
    )


def test_no_ratio_is_shown_for_other_tokens(folder, tmp_path, monkeypatch, capsys):
    true = comparisons.engine_decoding

    def forged(made, drafter, policy, texts, rows):
        generate = true(made, drafter, policy, texts, rows)
        if drafter is None or policy.depth != 2:
            return generate
        return lambda new: {
            name: (*tokens[:-1], (tokens[-1] + 1000) % 2048)
            for name, tokens in generate(new).items()
        }

    monkeypatch.setattr(comparisons, "engine_decoding", forged)
    assert (
        run(folder, tmp_path / "rows.jsonl", monkeypatch, "--no-transformers", "--requests", "1")
        == 1
    )
    shown = {
        line.split(" | ")[3]: line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| code | 1 | 4 |")
    }
    assert "not shown | differ (1 of 1 texts, largest gap" in shown["static_k_2"]
    assert "| exact |" in shown["static_k_1"]
    (row,) = [
        row for row in read_rows(tmp_path / "rows.jsonl") if row["implementation"] == "static_k_2"
    ]
    assert row["ratio"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--target", "nothing"],
            "--target is nothing, expected a checkpoint folder or one of checkpoint, ",
        ),
        (["--drafter", "none"], "--drafter is none, expected one that drafts"),
        (["--pairs", "0"], "--pairs: 0, expected an integer of at least 1"),
        (["--contexts", "5000"], "context is 5000, expected at most 1984 (a slot has 2048 tokens)"),
        (["--requests", "1,x"], "--requests: 1,x, expected integers of at least 1"),
        (["--workloads", "poems"], "--workloads: poems, expected some of code,prose,mixed,chat"),
        (["--tokens", "2"], "--tokens is 2, expected more than the most requests (2)"),
        (["nonsense=1"], "nonsense"),
    ],
)
def test_bad_input_is_one_line(folder, tmp_path, monkeypatch, capsys, arguments, message):
    assert run(folder, tmp_path / "rows.jsonl", monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "rows.jsonl").exists()


def test_rows_are_on_file_at_once_and_policies_believe_the_first_context(
    folder, tmp_path, monkeypatch, capsys
):
    def windows(model, *, context, **_):
        if context == 7:
            raise KeyboardInterrupt
        return [
            window(r, 1, d, 1e-3 * context + 1e-4 * r + 1e-4 * d, context)
            for r in (1, 2, 4)
            for d in (0, 3)
        ]

    cost_model = []
    monkeypatch.setattr(engine, "windows", windows)
    monkeypatch.setattr(
        engine.Bench, "speculation", lambda self, cases, cost: cost_model.append(cost) or []
    )
    monkeypatch.setattr(engine, "steady_prompts", lambda *_, count, **__: [(1, 2)] * count)
    assert (
        run(folder, tmp_path / "whole.jsonl", monkeypatch, "--contexts=2,5", "--no-transformers")
        == 0
    )
    assert cost_model[0].window(1, 1, 0) == pytest.approx(2.1e-3, rel=0.02)
    with pytest.raises(KeyboardInterrupt):
        run(folder, tmp_path / "killed.jsonl", monkeypatch, "--contexts=2,5,7", "--no-transformers")
    assert [row["shape"]["context"] for row in read_rows(tmp_path / "killed.jsonl")] == [2] * 6 + [
        5
    ] * 6


def window(rows, slots, depth, seconds, context=64):
    shape = {"target": "tiny", "rows": rows, "slots": slots, "depth": depth, "context": context}
    return row_of(
        {
            "operation": "window",
            "implementation": "a",
            "shape": shape,
            "mode": "wall",
            "bytes": None,
            "per": 1,
        },
        [seconds] * 3,
    )


def test_rows_to_time(tmp_path, monkeypatch, capsys):
    cells = [(r, s, d) for r, s in ((1, 1), (2, 1), (4, 1), (4, 2), (8, 2)) for d in (0, 3)]
    rows = [window(r, s, d, 2e-3 + 1e-4 * r + 5e-4 * s + 3e-4 * d) for r, s, d in cells]
    assert rows_to_time.lines(rows) == [
        "a window of tiny at 64 tokens of context: 2.00 + 0.100 rows + 0.500 slots + 0.300 drafts "
        "ms; R2 1.000, largest residual 0%"
    ]
    assert rows_to_time.draw(json.loads(json.dumps(rows)), tmp_path / "curve.svg")
    plot = (tmp_path / "curve.svg").read_text()
    assert rows[0]["device"].split("(")[0].strip() in plot
    assert "R2 1.000" in plot
    assert "2 slots, 3 drafts" in plot
    write_rows_to(tmp_path / "all.jsonl", rows)
    monkeypatch.setattr(sys, "argv", ["report", str(tmp_path / "all.jsonl")])
    assert report.main() == 0
    assert (tmp_path / "all.rows.svg").read_text() == plot
    assert (
        f"{rows_to_time.lines(rows)[0]}\nrows to time: {tmp_path / 'all.rows.svg'}\n"
        in capsys.readouterr().out
    )
    assert not rows_to_time.draw([{"operation": "decode"}], tmp_path / "none.svg")
