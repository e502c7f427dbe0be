"""A page in a real browser, headless."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
PROBE = """<script>
const errors = [];
addEventListener("error", event => errors.push(String(event.message)));
addEventListener("unhandledrejection", event => errors.push(String(event.reason)));
document.addEventListener("securitypolicyviolation", event => errors.push("blocked: " + event.blockedURI));
</script>"""
REPORT = """<script>
(async () => {
  while (document.documentElement.dataset.ready !== "yes") await new Promise(next => setTimeout(next, 50));
  const found = await (async () => { ASK })();
  const fetched = performance.getEntriesByType("resource").map(entry => entry.name);
  document.documentElement.dataset.probe = JSON.stringify({ errors, fetched, ...found });
})();
</script>"""


def browser() -> str:
    """Fails, rather than skips, where there is none: a page nobody has seen in a browser is not
    checked."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise AssertionError(
        "no Chromium is installed: `apt-get install chromium` (or put one of that name on PATH)"
    )


def visit(page: Path, ask: str, folder: Path, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """What `ask` (JavaScript that returns an object) finds once the page is ready, with the
    page's errors and all it fetched; and the lines the browser wrote on its console."""
    copy = folder / "probed.html"
    content = page.read_text(encoding="utf-8").replace("<head>", "<head>" + PROBE, 1)
    copy.write_text(
        content.replace("</body>", REPORT.replace("ASK", ask) + "</body>"), encoding="utf-8"
    )
    profile = f"--user-data-dir={folder / 'profile'}"
    command = [
        browser(),
        *FLAGS,
        *flags,
        profile,
        "--enable-logging=stderr",
        "--virtual-time-budget=60000",
        "--dump-dom",
        f"file://{copy}",
    ]
    environment = {**os.environ, "HOME": str(folder)}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environment)
    probe = re.search(r'data-probe="([^"]*)"', ran.stdout)
    assert probe is not None, f"the page was never ready: {ran.stderr[-2000:]}"
    return json.loads(unescape(probe[1])), [
        line for line in ran.stderr.splitlines() if "CONSOLE" in line
    ]
