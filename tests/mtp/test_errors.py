"""F05: an ERR line may be lost, but it ends nothing."""

from __future__ import annotations

import io
import sys

import pytest

from mtp.errors import print_error
from mtp.policies import RotateGrow
from mtp.request import Request
from tests.support.tapes import engine_of, random_tape


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(32, "Broken pipe")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii")


@pytest.mark.parametrize("stream", [Broken, closed, ascii_stream, lambda: None])
def test_F05_an_error_is_told_on_the_stream_that_is_left(stream, monkeypatch):
    other = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream())
    monkeypatch.setattr(sys, "stderr", other)
    print_error("één\n line", ValueError("é"))
    first, *rest = other.getvalue().splitlines()
    assert first == "ERR één line"
    assert rest[-1] == "ValueError: é"


def test_F05_what_an_encoding_does_not_know_is_escaped(monkeypatch):
    out = ascii_stream()
    monkeypatch.setattr(sys, "stdout", out)
    print_error("é")
    assert out.buffer.getvalue() == b"ERR \\xe9\n"


@pytest.mark.parametrize("stream", [Broken, closed, ascii_stream])
def test_F05_a_failing_request_costs_nobody_else_a_token_without_a_stream(stream, monkeypatch):
    requests = {Request(f"é{n}", (1, 2), 12, ignore_stop=True): random_tape(n) for n in range(3)}
    whole = engine_of(requests, RotateGrow(), slots=3).run()

    def on_tokens(name, tokens):
        if name == "é1":
            raise RuntimeError("the caller's own fault")

    engine = engine_of(requests, RotateGrow(), slots=3, on_tokens=on_tokens)
    monkeypatch.setattr(sys, "stdout", stream())
    monkeypatch.setattr(sys, "stderr", stream())
    finished = {done.id: done for done in engine.run()}
    assert finished["é1"].finish == "error"
    for done in whole:
        if done.id != "é1":
            assert finished[done.id].tokens == done.tokens
