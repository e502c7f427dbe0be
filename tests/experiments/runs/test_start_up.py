"""N09: what a command does before it decodes grows with its prompts and jobs, not with their
square."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

from experiments.sweep.folder import SweepFolder, SweepJob
from experiments.workloads.prompt_file import PromptFile


def test_N09_reading_prompts_is_linear(tmp_path: Path):
    def seconds(count: int) -> float:
        file = tmp_path / f"{count}.jsonl"
        file.write_text("".join(json.dumps({"prompt_ids": [1, n]}) + "\n" for n in range(count)))
        began = process_time()
        read = PromptFile(str(file)).load(lambda text: [0], max_new_tokens=4, seed=0)
        assert [request.id for request in read[:2]] == ["line-1", "line-2"]
        return (process_time() - began) / count

    assert seconds(6400) < 8 * min(seconds(100) for _ in range(3))


def test_N09_naming_what_differs_among_the_jobs_of_a_sweep_is_linear(tmp_path: Path):
    def seconds(count: int) -> float:
        common = [f"key{n}={n}" for n in range(8)]
        jobs = SweepJob.numbered([((*common, f"seed={n}"), "f") for n in range(count)])
        folder = SweepFolder(tmp_path, jobs, (), "", None)
        began = process_time()
        assert [folder.axes(job) for job in jobs[:2]] == ["seed=0", "seed=1"]
        assert all(folder.axes(job) for job in jobs)
        return (process_time() - began) / count

    assert seconds(1600) < 4 * min(seconds(50) for _ in range(3))
