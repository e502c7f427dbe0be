"""The report as a whole: its files, what it refuses, and what it never leaves out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from html.parser import HTMLParser

import polars as pl
import pytest

from experiments.config.checks import BadInput
from experiments.io import PROJECT
from experiments.report import page
from experiments.report.build import build
from experiments.report.files import write
from experiments.report.tables import latex
from tests.support.run_folders import write_run

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def report(folder, **options):
    said = write(folder, **options)
    return (
        said,
        (folder / "report" / "index.html").read_text(),
        (folder / "report" / "report.md").read_text(),
    )


def page_of(folder, **options):
    """index.html and report.md, without the files of the plots."""
    made = build(folder, **options)
    drawn = made.draw()
    return page.html(made, drawn), page.text(made, drawn)


def without_plotly(html: str) -> str:
    """The page without the library: what we wrote."""
    return re.sub(r"<script>/\*\*.*?</script>", "", html, count=1, flags=re.S)


class Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def test_a_report_of_nothing(tmp_path):
    said, html, markdown = report(tmp_path)
    assert said.startswith("0 runs, 0 arms")
    assert "no run was found at or below this folder" in html
    assert "No run has figures" in markdown
    assert pl.read_parquet(tmp_path / "report" / "results.parquet").height == 0
    # no library for nothing
    assert "<script>" not in html.replace("<script>const FIGURES = [];", "")


def test_a_report_of_one_run(tmp_path):
    write_run(tmp_path / "a")
    _, html, markdown = report(tmp_path)
    out = tmp_path / "report"
    assert "rotate_grow" in html
    assert "1 of 1 arms have fewer than 3 runs" in html
    assert "cpu" in markdown
    assert (out / "plots" / "window_timeline.svg").exists()
    assert (out / "plots" / "window_timeline.pdf").read_bytes().startswith(b"%PDF")
    (row,) = pl.read_parquet(out / "results.parquet").to_dicts()
    assert (row["arm"], row["parity"], row["arm_ratio"], row["config.seed"]) == (
        "rotate_grow",
        "exact",
        1.0,
        0,
    )
    tex = (out / "results.tex").read_text()
    assert tex.startswith("% evidence: cpu\n\\begin{tabular}")
    assert all(word in tex for word in (r"\toprule", r"\midrule", r"\bottomrule", r"rotate\_grow"))


def test_the_page_asks_for_nothing_from_outside(tmp_path):
    write_run(tmp_path / "a")
    html, _ = page_of(tmp_path)
    for tag, attributes in Tags(without_plotly(html)).found:
        outside = [
            value
            for name, value in attributes.items()
            if name in ("src", "href", "srcset", "action") and value != "data:,"
        ]
        assert not outside, (tag, attributes)
    assert html.count("plotly.js v") == 1
    assert "@import" not in without_plotly(html)
    assert "url(" not in without_plotly(html)


def test_the_command_at_the_foot_makes_the_page_again(tmp_path):
    folder = tmp_path / "two words"
    write_run(folder / "0", policy="static_k", k=0)
    write_run(folder / "1", policy="static_k", k=1)
    html, markdown = page_of(folder, baseline="policy=static_k,policy.k=1")
    command = f"python -m experiments.report '{folder}' --baseline policy=static_k,policy.k=1"
    assert f"Made by: `{command}`" in markdown
    shown = re.search(r"This page again: <code>(.*?)</code>", html)
    assert shown is not None
    assert shown[1].replace("&#39;", "'") == command


def test_two_versions_of_the_code_are_mixed_only_when_asked(tmp_path):
    write_run(tmp_path / "0")
    write_run(tmp_path / "1", metrics={"git_commit": "b" * 40})
    with pytest.raises(
        BadInput, match=rf"2 code versions \({'a' * 40}, {'b' * 40}\), expected one; --mix-versions"
    ):
        build(tmp_path)
    html, _ = page_of(tmp_path, mix_versions=True)
    assert "2 versions of the code are mixed" in html
    assert "rotate_grow commit=aaaaaaaaaa" in html  # never one arm
    assert "rotate_grow commit=bbbbbbbbbb" in html


def test_two_versions_of_torch_are_two_versions(tmp_path):
    write_run(tmp_path / "0")
    write_run(tmp_path / "1", metrics={"versions": {"mtplab": "0.1.0", "torch": "2.11.0"}})
    with pytest.raises(BadInput, match=r"torch 2\.11\.0.*torch 2\.13\.0"):
        build(tmp_path)


def test_jobs_without_figures_are_listed_with_their_reasons(tmp_path):
    write_run(tmp_path / "000-aa")
    write_run(
        tmp_path / "001-bb",
        state="failed",
        error="Traceback (most recent call last):\n  ...\nRuntimeError: out of <memory>",
        metrics={"x": 1},
    )
    write_run(tmp_path / "002-cc")
    (tmp_path / "002-cc" / "status.json").unlink()
    write_run(tmp_path / "003-dd")
    (tmp_path / "003-dd" / "metrics.json").write_text("{")
    jobs = [
        {"name": f"00{n}-{c}{c}", "overrides": [f"seed={n}"], "fingerprint": ""}
        for n, c in enumerate("abcde")
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": jobs}))
    said, html, markdown = report(tmp_path)
    assert said.startswith("4 runs, 1 arms, 3 not whole, 1 not run")
    for words in (
        "RuntimeError: out of &lt;memory&gt;",
        "running, or killed",
        "metrics.json",
        "004-ee: seed=4",
        "1 failed, 1 running, 1 half-written",
    ):
        assert words in html, words
    for line in (
        "- failed: 001-bb: RuntimeError: out of &lt;memory&gt;",
        "- running: 002-cc",
        "- half-written: 003-dd",
        "- not run: 004-ee: seed=4",
    ):
        assert line in markdown, line


def test_an_invalid_row_is_struck_through_and_does_not_rank(tmp_path):
    write_run(tmp_path / "0", policy="static_k", k=0, window_s=0.1)
    write_run(
        tmp_path / "1",
        window_s=0.01,
        parity={"checked": 2, "exact": False},
        state="failed",
        error="ParityError: tokens differ",
    )
    _, html, markdown = report(tmp_path)
    tags = [attributes for tag, attributes in Tags(without_plotly(html)).found if tag == "tr"]
    rows = {
        attributes["data-arm"]: attributes["class"]
        for attributes in tags
        if "data-arm" in attributes
    }
    assert rows == {"static_k k=0": "exact base", "rotate_grow": "invalid"}
    assert "tr.invalid td:not(:has(.parity)) { text-decoration: line-through" in html
    (line,) = [
        line for line in markdown.splitlines() if "rotate_grow" in line and line.startswith("|")
    ]
    assert line.startswith("| – | ~~rotate_grow~~ | ~~invalid~~ |")
    assert r"\st{rotate\_grow} & \st{invalid}" in (tmp_path / "report" / "results.tex").read_text()
    assert "ParityError: tokens differ" in html
    assert "1 of 2 arms do not rank" in html


@pytest.mark.parametrize(("plain", "noted"), [(42.0, False), (60.0, True), (None, False)])
def test_a_machine_that_was_not_quiet_is_noted(tmp_path, plain, noted):
    write_run(tmp_path / "0", policy="static_k", k=1, metrics={"plain_tokens_per_s": 40.0})
    write_run(tmp_path / "1", metrics={"plain_tokens_per_s": plain})
    said = [note for note in build(tmp_path).notes if "not quiet" in note]
    assert bool(said) == noted
    # other work, not drift
    write_run(tmp_path / "2", config={"slots": 8}, metrics={"plain_tokens_per_s": 400.0})
    assert len([note for note in build(tmp_path).notes if "not quiet" in note]) == len(said)
    if noted:
        assert "up to 50% faster" in said[0]


def test_each_evidence_has_a_table_of_its_own(tmp_path):
    write_run(tmp_path / "0", policy="static_k", k=0)
    write_run(tmp_path / "1", policy="static_k", k=0, metrics={"evidence": "synthetic"})
    html, markdown = page_of(tmp_path)
    assert re.findall(r"<h2>Results <span class=\"badge\">(\w+)</span>", html) == [
        "cpu",
        "synthetic",
    ]
    assert re.findall("^## Speed, evidence: (.*)$", markdown, flags=re.M) == ["cpu", "synthetic"]
    tex = latex(build(tmp_path).by_evidence)
    assert re.findall("% evidence: (.*)", tex) == ["cpu", "synthetic"]


def test_html_in_prompts_names_and_errors_stays_text(tmp_path):
    write_run(tmp_path / "0", config={"tag": EVIL}, text=EVIL, windows=[[(EVIL, 4, 2)]] * 3)
    write_run(tmp_path / "1", config={"tag": "other"}, state="failed", error=EVIL)
    write_run(tmp_path / "2", config={"tag": "b|`c`"}, text="x")
    html, markdown = page_of(tmp_path)
    ours = without_plotly(html)
    assert "<img" not in ours
    assert "alert(1)</script>" not in ours
    assert ours.count("<script>") == 1  # ours
    assert not [
        attributes
        for _, attributes in Tags(ours).found
        if any(name.startswith("on") for name in attributes)
    ]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in ours
    assert "<script" not in markdown
    assert r"tag=b\|\`c\`" in markdown


@pytest.mark.slow
def test_pictures_of_an_earlier_report_do_not_stay(tmp_path):
    run = write_run(tmp_path / "a")
    report(tmp_path)
    assert (tmp_path / "report" / "plots" / "window_time.svg").exists()
    (run / "steps.parquet").unlink()
    _, html, markdown = report(tmp_path)
    assert not (tmp_path / "report" / "plots" / "window_time.svg").exists()
    assert "<b>Window time against rows</b>: no run has steps.parquet" in html
    assert "Not drawn: no run has steps.parquet." in markdown


def command(*arguments):
    ran = subprocess.run(
        [sys.executable, "-m", "experiments.report", *arguments],
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )
    return ran.returncode, ran.stdout, ran.stderr


def test_the_command_makes_a_report_and_refuses_in_one_line(tmp_path):
    write_run(tmp_path / "runs" / "a")
    code, out, _ = command(str(tmp_path / "runs"), "--out", str(tmp_path / "there"))
    assert (code, (tmp_path / "there" / "index.html").exists()) == (0, True)
    assert out.startswith("1 runs, 1 arms, 0 not whole, 0 not run")
    assert f"--out {tmp_path / 'there'}" in (tmp_path / "there" / "report.md").read_text()
    for wrong, says in (
        ([str(tmp_path / "none")], "error: DIR is "),
        (
            [str(tmp_path / "runs"), "--baseline", "policy"],
            "error: --baseline is 'policy', expected key=value pairs",
        ),
        ([], "error: the following arguments are required: DIR"),
    ):
        code, _, err = command(*wrong)
        assert code == 2
        assert err.startswith(says)
        assert len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_five_hundred_runs_in_a_minute(tmp_path):
    windows = [[(name, 4, 1 + (w + n) % 4) for n, name in enumerate("ab")] for w in range(60)]
    for n in range(500):
        write_run(
            tmp_path / f"{n:03d}",
            policy="static_k",
            k=n % 4,
            windows=windows,
            config={"slots": n // 8, "seed": n % 8 // 4},
        )
    began = time.perf_counter()
    said, html, _ = report(tmp_path)
    assert time.perf_counter() - began < 60
    assert said.startswith("500 runs, 252 arms, 0 not whole")
    assert html.count("data-arm=") == 252
    assert "24 of 252 arms; all are in results.parquet" in html
    assert pl.read_parquet(tmp_path / "report" / "results.parquet").height == 500
    assert len(html) < 12_000_000
