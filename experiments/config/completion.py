"""Tab completion in bash: Hydra's own, which knows `python FILE` and installed commands, taught
`python -m experiments.run` too."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout

MODULE = "-m experiments.run"
OURS = f'''    if [ "${{words[1]}} ${{words[2]}}" == "{MODULE}" ]; then
        helper="${{words[0]}} {MODULE}"
    elif [ "${{words[0]}}" == "python" ]; then'''
PART = re.compile(r"^\w+=_\w*$\n?", re.MULTILINE)  # a config that others share, no choice itself
HYDRAS = '    if [ "${words[0]}" == "python" ]; then'


def completes(arguments: Sequence[str]) -> bool:
    return any(argument in ("-sc", "--shell-completion") for argument in arguments)


def complete(job: Callable[[], object], arguments: Sequence[str]) -> None:
    """job: Hydra's main function, which answers."""
    line = os.environ.get("COMP_LINE", "")
    os.environ["COMP_LINE"] = line.replace(MODULE, "experiments/run.py", 1)
    answer = io.StringIO()
    with redirect_stdout(answer):
        job()
    print(PART.sub("", answer.getvalue().replace(HYDRAS, OURS)), end="")
