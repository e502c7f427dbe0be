"""Tapes: what a row means, and files that give back what was written."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys

import polars as pl
import pytest

from mtp.executor import Limits
from mtp.request import Request
from mtp.tape import Tape, leading, read_tapes, text_of, write_tapes
from tests.support import ROOT


def fp32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def drawn(seed, length=20, depth=7):
    draw = random.Random(seed)
    held = [draw.randint(0, depth) for _ in range(length)]
    confidence = tuple(tuple(fp32(draw.random()) for _ in range(n)) for n in held)
    return Tape(
        tuple(draw.randrange(99) for _ in held), tuple(draw.randint(0, n) for n in held), confidence
    )


TAPES = {
    "held varies": drawn(1),
    "ü [/b]": drawn(2, length=1),
    "no confidence": Tape((1, 2), (0, 7)),
    "never a draft": Tape((1, 2), (0, 0), ((), ())),
    "truth": Tape((1, 2), (1, 0), ((fp32(0.3),), (1.0,)), ((0.1, 0.2), (0.3, 0.4))),
}


@pytest.mark.parametrize(
    "names", [[name] for name in TAPES] + [list(TAPES), ["no confidence", "truth"]], ids=str
)
def test_files_give_back_what_was_written(tmp_path, names):
    written = {name: TAPES[name] for name in names}
    write_tapes(tmp_path / "tape.parquet", written)
    read = read_tapes(tmp_path / "tape.parquet")
    assert read == written
    assert list(read) == names
    assert [file.name for file in tmp_path.iterdir()] == ["tape.parquet"]


def test_the_columns_are_those_that_others_read(tmp_path):
    write_tapes(tmp_path / "t", {"a": TAPES["held varies"], "b": TAPES["no confidence"]})
    frame = pl.read_parquet(tmp_path / "t")
    assert frame.columns == [
        "request",
        "index",
        "token",
        "matches",
        "held",
        *(f"confidence_{place}" for place in range(1, 8)),
    ]
    assert frame["confidence_1"].dtype == pl.Float32
    assert frame["index"].to_list() == [*range(20), 0, 1]
    # the order of the rows does not matter
    frame.sample(fraction=1, shuffle=True, seed=1).write_parquet(tmp_path / "t")
    assert read_tapes(tmp_path / "t") == {"a": TAPES["held varies"], "b": TAPES["no confidence"]}


def test_a_file_without_the_held_column_takes_it_from_the_confidence(tmp_path):
    write_tapes(tmp_path / "t", {"a": TAPES["held varies"]})
    pl.read_parquet(tmp_path / "t").drop("held").write_parquet(tmp_path / "t")
    assert Tape.read(tmp_path / "t") == TAPES["held varies"]


def test_one_request_of_a_file(tmp_path):
    TAPES["truth"].write(tmp_path / "one")
    assert Tape.read(tmp_path / "one") == TAPES["truth"]
    write_tapes(tmp_path / "two", {"a": TAPES["truth"], "b": TAPES["held varies"]})
    assert Tape.read(tmp_path / "two", "b") == TAPES["held varies"]
    for name in (None, "c"):
        with pytest.raises(
            ValueError, match=f"request is {name!r}, expected one of the tapes in .*: a, b"
        ):
            Tape.read(tmp_path / "two", name)


def test_what_is_no_tape_is_refused_in_one_line(tmp_path):
    (tmp_path / "text").write_text("hello")
    pl.DataFrame({"request": ["a"], "index": [0], "token": [3]}).write_parquet(tmp_path / "column")
    pl.DataFrame(
        {"request": ["a", "a"], "index": [0, 2], "token": [3, 4], "matches": [0, 0]}
    ).write_parquet(tmp_path / "gap")
    cases = (
        ("text", "cannot be read"),
        ("none", "cannot be read"),
        ("column", "column matches is missing"),
        ("gap", "does not run from 0 to 1"),
    )
    for name, message in cases:
        with pytest.raises(ValueError, match=message) as refused:
            read_tapes(tmp_path / name)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="no tape to write"):
        write_tapes(tmp_path / "t", {})


def test_matches_count_what_is_known_only():
    tokens = (5, 6, 7, 8)
    # the second chain's third draft lies past the end, and so does all of the last
    drafts = (
        (6, 7, 9),
        (7, 8, 1),
        (8, 2, 3),
        (),
    )
    tape = Tape.recorded(tokens, drafts, ((0.5,) * 3, (0.5,) * 3, (0.5,) * 3, ()))
    assert tape.matches == (2, 2, 1, 0)
    assert [tape.held(place, 2) for place in range(4)] == [2, 2, 2, 0]
    assert leading((), (1,)) == leading((1,), ()) == 0
    assert Tape(tokens, (0, 0, 0, 0)).held(0, 5) == 5


@pytest.mark.parametrize(
    ("options", "limits", "expected"),
    [
        ({}, Limits(100, 50, frozenset()), ((4, 7, 5, 7, 6), "length")),
        ({}, Limits(100, 50, frozenset({7})), ((4, 7), "stop")),
        ({"min_new_tokens": 2}, Limits(100, 50, frozenset({7})), ((4, 7, 5, 7), "stop")),
        ({"ignore_stop": True}, Limits(100, 50, frozenset({7})), ((4, 7, 5, 7, 6), "length")),
        ({"stop_ids": frozenset({5})}, Limits(100, 50, frozenset()), ((4, 7, 5), "stop")),
        ({}, Limits(100, 5, frozenset()), ((4, 7), "length")),
    ],
)
def test_the_text_of_a_tape(options, limits, expected):
    tape = Tape((4, 7, 5, 7, 6), (0,) * 5)
    assert text_of(tape, Request("a", (1, 2, 3), 5, **options), limits) == expected


def test_a_tape_that_is_too_short_is_named():
    with pytest.raises(
        ValueError,
        match="request a: its tape ends after 1 tokens, expected one that reaches its end \\(5\\)",
    ):
        text_of(Tape((4,), (0,)), Request("a", (1,), 5), Limits(100, 50, frozenset()))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (((), ()), "one row per token"),
        (((1,), (0, 0)), "one row per token"),
        (((1,), (-1,)), "matches holds -1"),
        (((1, 2), (0, 0), ((0.5,),)), "1 rows of confidence"),
        (((1, 2), (0, 0), (), ((0.5,),)), "1 rows of truth"),
    ],
)
def test_rows_must_belong_to_tokens(fields, message):
    with pytest.raises(ValueError, match=message):
        Tape(*fields)


def test_tapes_are_read_and_run_without_torch():
    code = (
        "import sys, mtp.tape.synthesis, mtp.execution.tape, mtp.policies; assert not {'torch', "
        "'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_example_of_the_docs_runs(capsys):
    page = (ROOT / "docs" / "tapes.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/tapes.md", "exec"), {})
    windows, seconds = capsys.readouterr().out.split()
    assert int(windows) < 199  # fewer than plain decoding needs
    assert float(seconds) > 0
