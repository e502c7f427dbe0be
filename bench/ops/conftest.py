"""What pytest-benchmark leaves behind: rows of quantiles, and its own JSON without single
samples and the machine's name in a network."""

from __future__ import annotations

from typing import Any

import torch

from bench.ops.bandwidth import copy_bytes_per_us, with_share
from bench.rows import row_of, write_rows

torch.set_num_threads(1)


def pytest_benchmark_update_machine_info(config: Any, machine_info: dict[str, Any]) -> None:
    machine_info.pop("node", None)


def pytest_benchmark_update_json(config: Any, benchmarks: Any, output_json: dict[str, Any]) -> None:
    rows = []
    for entry in output_json["benchmarks"]:
        rows.append(row_of(entry["extra_info"], entry["stats"].pop("data")))
        rows += [
            row_of({**entry["extra_info"], "mode": "graph"}, samples)
            for samples in [entry["extra_info"].pop("graph_s", [])]
            if samples
        ]
    clock = str(config.getoption("benchmark_timer"))
    rows = [row if row["mode"] == "graph" else row | {"clock": clock} for row in rows]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    moving = any(row["bytes"] for row in rows)
    write_rows([with_share(row, copy_bytes_per_us(device)) for row in rows] if moving else rows)
