"""Runs on tapes through the entry point: recorded, replayed, synthetic."""

from __future__ import annotations

import io
import json
from itertools import count

import polars as pl
import pytest
from hydra import compose, initialize_config_dir
from rich.console import Console

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.run import CONFIGS
from experiments.runs.job import ParityError, run_job
from experiments.runs.validate import validate
from experiments.workloads.lengths import draw_lengths
from experiments.workloads.synthetic import SyntheticWorkload
from mtp.tape import read_tapes, write_tapes

SYNTHETIC = "workload=synthetic"
TIMES = ("start_s", "end_s")
MODEL = [
    "target.dtype=fp32",
    "device=cpu",
    "workload.requests=3",
    "plain=false",
    "max_new_tokens=20",
]


@pytest.fixture
def go(tmp_path, monkeypatch):
    """Runs a job in a folder of its own: the folder and its metrics."""
    resolvers.register()
    monkeypatch.chdir(tmp_path)
    numbers = count()

    def run(*overrides):
        folder = tmp_path / f"run{next(numbers)}"
        folder.mkdir()
        with initialize_config_dir(CONFIGS, version_base="1.3"):
            config = compose("run", overrides=list(overrides))
        done = run_job(config, folder, "id", Console(file=io.StringIO()))
        if done.failure is not None:
            raise done.failure
        done.show()
        return folder, done.metrics

    return run


@pytest.mark.parametrize(
    "drafter", [pytest.param("qwen_mtp", marks=pytest.mark.slow), "prompt_lookup"]
)
def test_a_recorded_run_is_replayed_from_its_folder_alone_window_by_window(go, drafter):
    recorded, metrics = go("experiment=record", f"drafter={drafter}", *MODEL)
    assert metrics["parity"]["exact"]
    # plain decoding: every window drafts, none is verified
    assert metrics["mean_acceptance_length"] == 1
    assert metrics["policy"]["tokens"] == 3 * (20 - 7)
    for options in (
        ["grant=off"],
        ["share=tick", "grant.budget=2"],
        ["policy=static_k", "policy.k=3", "share=window", "grant=rotate"],
    ):
        real, on_model = go(f"drafter={drafter}", *options, *MODEL)
        replayed, on_tape = go(
            "workload=recorded", f"workload.path={recorded}", "plain=false", *options
        )
        windows = [
            pl.read_parquet(folder / "rounds.parquet").drop(TIMES) for folder in (real, replayed)
        ]
        assert windows[0].equals(windows[1])
        assert (on_model["evidence"], on_tape["evidence"]) == ("cpu", "tape")
        assert (on_tape["parity"]["checked"], on_tape["parity"]["label"]) == (3, "exact")
        for name in ("drafts_accepted", "rows_padded", "windows", "acceptance_novel", "grants"):
            assert on_tape[name] == on_model[name], name
        texts = [
            [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
            for folder in (real, replayed)
        ]
        assert [
            (one["request"], one["prompt_hash"], one["tokens"], one["finish"]) for one in texts[0]
        ] == [
            (one["request"], one["prompt_hash"], one["tokens"], one["finish"]) for one in texts[1]
        ]
    assert on_model["drafts_accepted"] > 0


def test_a_tape_whose_text_is_not_what_comes_out_fails_the_run(go, monkeypatch):
    recorded, _ = go("experiment=record", *MODEL)
    monkeypatch.setattr(
        "experiments.runs.tape_runtime.text_of",
        lambda tape, request, limits: (tape.tokens[:5], "length"),
    )
    with pytest.raises(ParityError, match=r"index.: 5"):
        go("workload=recorded", f"workload.path={recorded}")


def test_a_synthetic_run_needs_no_model_and_writes_the_same_files(go):
    nowhere = ["target=checkpoint", "target.path=no/such/folder", "drafter=none"]
    folder, metrics = go(
        "workload=synthetic",
        "workload.regime=code",
        *nowhere,
        "layout=slots",
        "layout.capture_on=1",
        "max_new_tokens=60",
    )
    assert metrics["evidence"] == "synthetic"
    assert (metrics["parity"]["checked"], metrics["parity"]["label"]) == (8, "exact")
    # four slots, tight rows, no draft
    assert metrics["plain_tokens_per_s"] == pytest.approx(4 / (0.0226 + 4 * 0.0053), rel=0.02)
    assert metrics["tokens_per_s"] != metrics["plain_tokens_per_s"]
    assert metrics["layouts"]["capture_s"] == pytest.approx(
        2 * 0.02 * metrics["layouts"]["captures"]
    )
    assert metrics["split_s"]["capture"] == pytest.approx(metrics["layouts"]["capture_s"])
    assert metrics["split_s"]["host"] == pytest.approx(0, abs=1e-6)
    assert metrics["rows_padded"] > 0
    rounds = pl.read_parquet(folder / "rounds.parquet")
    assert rounds["committed"].sum() == metrics["tokens_committed"] == 8 * 59
    again, _ = go(
        "workload=synthetic",
        "workload.regime=code",
        "layout=slots",
        "layout.capture_on=1",
        "max_new_tokens=60",
    )
    assert pl.read_parquet(again / "rounds.parquet").equals(rounds)  # virtual times included
    other, _ = go("workload=synthetic", "workload.regime=code", "seed=1", "max_new_tokens=60")
    assert not pl.read_parquet(other / "rounds.parquet").drop(TIMES).equals(rounds.drop(TIMES))


def test_costs_arrivals_lengths_and_more_slots_than_a_model_has(go):
    wide = ["slots=200", "rows=512", "buckets=tight", "workload.requests=250"]
    _, metrics = go(
        "workload=synthetic",
        *wide,
        "workload.output_tokens=[lognormal,10,0.5]",
        "workload.prompt_tokens=[uniform,1,300]",
    )
    lengths = [one["tokens"] for one in metrics["requests"]]
    assert len(set(lengths)) > 8
    assert len({one["prompt_tokens"] for one in metrics["requests"]}) > 50
    _, slow = go(
        "workload=synthetic",
        "workload.arrivals=poisson",
        "workload.rate=0.1",
        "cost.row=0",
        "cost.base=1",
        "max_new_tokens=4",
    )
    assert slow["decode_s"] == pytest.approx(slow["windows"] * (1 + 3 * 0.0008))
    # about 80 virtual seconds until the last one arrives
    assert slow["end_to_end_tokens_per_s"] < 8 * 4 / 50


def test_requests_arrive_as_a_trace_says_in_virtual_time(go, tmp_path):
    (tmp_path / "times").write_text("0.5 100 1000")
    folder, metrics = go(
        SYNTHETIC,
        "workload.requests=3",
        "workload.arrivals=trace",
        "workload.trace=times",
        "max_new_tokens=3",
    )
    starts = (
        pl.read_parquet(folder / "rounds.parquet")
        .group_by("request")
        .agg(pl.col("start_s").min())
        .sort("start_s")
    )
    assert starts["request"].to_list() == ["mixed-0", "mixed-1", "mixed-2"]
    for arrival, start in zip((0.5, 100, 1000), starts["start_s"], strict=True):
        assert 0 < start - arrival < 0.1  # its prefill
    assert all(one["ttft_s"] < 0.1 for one in metrics["requests"])


def test_lengths_are_drawn_as_told():
    assert draw_lengths("n", 5, 3, most=9, seed=0) == [5, 5, 5]
    uniform = draw_lengths("n", ["uniform", 2, 4], 1000, most=9, seed=0)
    assert (set(uniform), uniform) == (
        {2, 3, 4},
        draw_lengths("n", ["uniform", 2, 4], 1000, most=9, seed=0),
    )
    lognormal = sorted(draw_lengths("n", ["lognormal", 50, 0.5], 2000, most=200, seed=1))
    assert lognormal[1000] == pytest.approx(50, abs=3)
    assert lognormal[1682] / lognormal[1000] == pytest.approx(1.65, abs=0.1)  # e^0.5: one sigma
    assert lognormal[-1] <= 200


def test_a_request_s_tape_does_not_depend_on_how_many_there_are_and_is_not_kept_for_ever():
    few, many = (
        SyntheticWorkload("switch", requests=n).tapes(max_new_tokens=20, seed=3) for n in (2, 2000)
    )
    assert few.tapes["switch-1"] == many.tapes["switch-1"]
    assert few.tapes["switch-0"] != few.tapes["switch-1"]
    assert "switch-2" not in few.tapes
    assert len(many.tapes) == len(list(many.tapes)) == 2000


BAD = [
    ([SYNTHETIC, "workload.regime=poetry"], "workload.regime is 'poetry', expected one of code"),
    ([SYNTHETIC, "workload.auc=0.95"], "workload.auc is 0.95, expected 0.5 to 0.8"),
    ([SYNTHETIC, "workload.auc=high"], "workload.auc is 'high'"),
    (
        [SYNTHETIC, "workload.requests=10001"],
        "workload.requests is 10001, expected an integer, 1 to 10000",
    ),
    (
        [SYNTHETIC, "workload.arrivals=file"],
        "workload.arrivals is 'file', expected one of at_once, poisson, trace",
    ),
    ([SYNTHETIC, "workload.arrivals=poisson"], "workload.rate is null"),
    (
        [SYNTHETIC, "workload.output_tokens=[normal,1,2]"],
        "workload.output_tokens is ['normal', 1, 2], expected a number of tokens",
    ),
    (
        [SYNTHETIC, "workload.output_tokens=[uniform,9,3]"],
        "workload.output_tokens[2] is 3, expected an integer, 9 to",
    ),
    ([SYNTHETIC, "workload.prompt_tokens=0"], "workload.prompt_tokens is 0"),
    (
        [SYNTHETIC, "workload.prompt_tokens=4096"],
        "workload.prompt_tokens is 4096, expected an integer, 1 to 4095",
    ),
    ([SYNTHETIC, "workload.bogus=1"], "bogus"),
    ([SYNTHETIC, "slots=1025"], "slots is 1025, expected an integer, 1 to 1024"),
    (
        [SYNTHETIC, "workload.depth=2"],
        "the policy drafts 3 tokens, expected at most 2 (the depth of these tapes)",
    ),
    ([SYNTHETIC, "plan=device"], "plan is device, but the workload is on tapes"),
    ([SYNTHETIC, "policy=record"], "policy=record needs a target"),
    (["policy=record", "grant=rotate"], "policy=record needs a target, a drafter and grant=off"),
    (["policy=record", "policy.depth=0"], "policy.depth is 0, expected an integer, 1 to 7"),
    (["cost.row=-1"], "cost.row is -1, expected a finite number of seconds"),
    (["cost.base=abc"], "cost.base is 'abc'"),
    (["workload=recorded"], "workload.path"),
    (
        ["workload=recorded", "workload.path=no/such"],
        "expected the folder of a recorded run: it has no tape.parquet",
    ),
]


@pytest.mark.parametrize(
    ("overrides", "message"), BAD, ids=[" ".join(overrides) for overrides, _ in BAD]
)
def test_bad_values_are_refused_in_one_line_before_anything_runs(overrides, message):
    resolvers.register()
    with pytest.raises(BadInput) as refused:
        validate(overrides, CONFIGS, "run")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_recording_that_was_changed_is_refused(go):
    folder, _ = go("experiment=record", *MODEL)
    tapes = read_tapes(folder / "tape.parquet")
    first, *others = tapes
    write_tapes(folder / "tape.parquet", {name: tapes[name] for name in others})
    with pytest.raises(BadInput, match=f"holds no tape of request {first}"):
        go("workload=recorded", f"workload.path={folder}")
    (folder / "tape.json").write_text("{}")
    with pytest.raises(BadInput, match="vocab"):
        go("workload=recorded", f"workload.path={folder}")


def test_a_recording_needs_a_drafter(go):
    with pytest.raises(BadInput, match="drafter is none"):
        go("experiment=record", "drafter=none", *MODEL)
