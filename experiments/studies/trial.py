"""One cell: every arm on the same tapes, engine and executor in this process. What it gives is
small enough for a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments.assets import TAPES
from experiments.config.build import build
from experiments.config.own import policy_node
from experiments.io import PROJECT
from experiments.studies.cell import CONFIDENCE, Cell
from experiments.studies.loops import before_loop
from experiments.studies.measure import full_batch
from mtp.buckets import Buckets
from mtp.costs import LinearCost
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.graphs.tape import TapeGraphs
from mtp.layouts import Keyed, LayoutCache, LayoutKey
from mtp.policies import Policy, TapeOracle
from mtp.request import Request
from mtp.tape import Tape, read_tapes

PUBLISHED_SIZES = ("rotate_grow", "rotate_anchors_first")  # know no others
CAPACITY = 32  # layouts, as published
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """Arms on one cell."""

    cell: Cell
    arms: tuple[str, ...]
    requests: int = 32  # of a synthetic cell, at least three a slot
    tokens: int = 250  # of each
    layout: LayoutKey = "rows"  # the key whose captures are counted
    own: str = ""  # what policy=own is, where it is an arm: another class is another trial


def run_trial(trial: Trial) -> dict[str, Any]:
    """By arm: see `full_batch`, and `captures`."""
    cell = trial.cell
    tapes = tapes_of(cell, max(trial.requests, 3 * cell.slots), cell.length * trial.tokens)
    arms = {}
    for arm in trial.arms:
        if (policy := policy_of(arm, cell, tapes)) is not None:
            arms[arm] = _run(policy, cell, tapes, trial.layout)
    return {"arms": arms, "requests": list(tapes)}


def tapes_of(cell: Cell, requests: int, tokens: int) -> Mapping[str, Tape]:
    """Synthetic ones by the cell's seed; a recording's whole, cut before they loop, those of
    several recordings in turn."""
    if cell.family == "tape":
        recordings = [read_tapes(_folder(folder)).items() for folder in cell.regime.split("+")]
        recorded = {name: before_loop(tape) for name, tape in in_turn(recordings)}
        return {name: tape for name, tape in recorded.items() if len(tape.tokens) > 1}
    settings = CONFIDENCE[cell.confidence]
    return {
        f"r{n}": Tape.synthetic(cell.regime, length=tokens, seed=(cell.seed, n), **settings)
        for n in range(requests)
    }


def in_turn(several: Iterable[Collection[T]]) -> list[T]:
    """All of all, each spread evenly over the whole."""
    placed = [((n + 0.5) / len(some), item) for some in several for n, item in enumerate(some)]
    return [item for _, item in sorted(placed, key=lambda one: one[0])]


def policy_of(arm: str, cell: Cell, tapes: Mapping[str, Tape]) -> Policy | None:
    """From configs/policy, with the cell's sizes, buckets and estimated cost. None: it cannot be
    in this cell. `static_K`: static_k with k = K. Raises BadInput."""
    name, _, k = arm.rpartition("_") if arm[-1].isdigit() else (arm, "", "")
    if (k and int(k) + 1 not in cell.sizes) or (arm == "oracle_p" and cell.family == "tape"):
        return None
    config = OmegaConf.create(
        {
            "policy": _policy_config(f"{name}{'_k' if k else ''}"),
            "sizes": [1, 2, 4] if arm in PUBLISHED_SIZES else list(cell.sizes),
            "buckets": list(cell.buckets) or "tight",
            "cost": {"_target_": "mtp.costs.LinearCost", **cell.cost(cell.belief)},
        }
    )
    if k:
        config.policy.k = int(k)
    oracle = TapeOracle(tapes, probabilities=cell.family != "tape")
    arguments = {"oracle": oracle} if config.policy.get("_partial_") else {}
    return build(policy_node(config), "policy", **arguments)


@cache
def _policy_config(name: str) -> Any:
    """configs/policy/NAME.yaml with its defaults; interpolations stay."""
    with initialize_config_dir(str(PROJECT / "configs"), version_base="1.3"):
        config = compose(f"policy/{name}")
    return OmegaConf.to_container(config.policy)


def _run(policy: Policy, cell: Cell, tapes: Mapping[str, Tape], key: LayoutKey) -> dict[str, Any]:
    vocab = 2 + max(max(tape.tokens) for tape in tapes.values())
    limits = Limits(vocab, 1 << 20, frozenset())
    cost = LinearCost(**cell.cost())
    executor = TapeExecutor(tapes, limits=limits, cost=cost, buckets=Buckets(cell.buckets))
    cache = LayoutCache(
        CAPACITY,
        TapeGraphs(executor.spend, capture_s=cost.capture_s),
        give_up_after=1 << 30,
        clock=executor.now,
    )
    engine = Engine(
        executor, slots=cell.slots, rows=cell.rows, policy=policy, layout=Keyed(key, cache)
    )
    for name, tape in tapes.items():
        engine.submit(Request(name, (0,), len(tape.tokens), ignore_stop=True))
    engine.run()
    return full_batch(engine, list(tapes), cell.slots) | {"captures": cache.stats().captures}


def _folder(name: str) -> Path:
    path = Path(name) if Path(name).is_absolute() else TAPES / name
    return path / "tape.parquet"
