"""The page in a real browser: drawn whole, in silence, from the file alone."""

from __future__ import annotations

import shutil

import pytest

from experiments.report.files import write
from tests.support.browser import browser, visit
from tests.support.run_folders import write_run

pytestmark = pytest.mark.slow

CHARTS = """
return { charts: [...document.querySelectorAll(".chart")].map(chart => ({
  id: chart.closest("section").id, traces: chart.data.length,
  drawn: chart.querySelectorAll(".mlayer path, .mlayer image").length,
  wide: chart.clientWidth, svg: chart.querySelector(".main-svg").clientWidth })),
  page: document.documentElement.scrollWidth, window: innerWidth };
"""
EVIL = "<img src=http://example.com/x.png onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    windows = [[("a", 4, 1 + w % 4), ("b", 2, 1 + w % 2), (EVIL, 1, 1)] for w in range(50)]
    for n, (policy, k) in enumerate([("static_k", 0), ("static_k", 1), ("rotate_grow", None)]):
        for slots in (2, 4):
            config = {"slots": slots, "tag": EVIL}
            write_run(
                folder / f"{n}-{slots}",
                policy=policy,
                k=k,
                windows=windows,
                config=config,
                captures=(0, 3) if n else (),
                text=EVIL,
            )
    write_run(folder / "wrong", config={"slots": 8}, parity={"checked": 2, "exact": False})
    write_run(folder / "failed", state="failed", error=EVIL)
    write(folder)
    return folder / "report" / "index.html"


WINDOWS = {
    "wide": ("--window-size=1300,900",),
    "narrow": ("--window-size=500,844",),
    "dark": ("--blink-settings=preferredColorScheme=0",),
}


@pytest.mark.parametrize("flags", WINDOWS.values(), ids=WINDOWS)
def test_every_picture_is_drawn_in_silence(page, tmp_path, flags):
    found, console = visit(page, CHARTS, tmp_path, *flags)
    assert found["errors"] == []
    assert console == []
    assert [url for url in found["fetched"] if not url.startswith(("data:", "blob:"))] == []
    charts = found["charts"]
    assert len(charts) == page.read_text().count('class="chart"') > 8
    expected = {
        "speed",
        "window_timeline",
        "acceptance_by_position",
        "pareto",
        "split",
        "layouts",
        "heat_maps",
        "window_time",
    }
    assert {one["id"] for one in charts} == expected
    assert all(
        one["drawn"] > 0 and one["traces"] > 0 and 0 < one["svg"] <= one["wide"] + 1
        for one in charts
    ), charts
    assert found["page"] <= found["window"]  # nothing sticks out


def test_filter_theme_and_sorting(page, tmp_path):
    ask = """
    const root = document.documentElement, ink = () => getComputedStyle(document.body).color;
    const shown = () => [...document.querySelectorAll("tr[data-arm]")].filter(row => row.offsetParent).map(row => row.dataset.arm);
    const input = document.getElementById("filter"), all = shown(), light = ink();
    input.value = "rotate"; input.dispatchEvent(new Event("input"));
    const some = shown();
    const hidden = document.querySelector("#acceptance_by_position .chart").data.filter(trace => trace.visible === false).length;
    input.value = ""; input.dispatchEvent(new Event("input"));
    document.getElementById("theme").click();
    const dark = ink(), chart = document.querySelector(".chart").layout.font.color;
    const speed = [...document.querySelectorAll("th")].find(header => header.textContent === "tokens/s");
    speed.click();
    const column = [...speed.parentNode.children].indexOf(speed);
    const order = [...document.querySelectorAll("tr[data-arm]")].map(row => +row.children[column].dataset.value);
    const struck = [...document.querySelectorAll("tr.invalid td")].map(cell => getComputedStyle(cell).textDecorationLine);
    return { all, some, hidden, light, dark, chart, order, struck };
    """
    found, console = visit(page, ask, tmp_path, "--window-size=1300,900")
    assert (found["errors"], console) == ([], [])
    assert len(found["all"]) == 7
    assert 0 < len(found["some"]) < 7
    assert all("rotate" in arm for arm in found["some"])
    assert found["hidden"] > 0
    assert found["light"] != found["dark"]
    assert found["chart"] == "#e6e8eb"
    assert found["order"] == sorted(found["order"])
    # all but the label that says so
    assert found["struck"].count("line-through") == len(found["struck"]) - 1


def test_without_a_browser_it_is_said_how_to_get_one(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(AssertionError, match="apt-get install chromium"):
        browser()
