"""The top-level keys of a run, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from omegaconf import DictConfig, OmegaConf

from experiments.config.checks import BadInput, choice, integer, integers
from mtp.buckets import Buckets
from mtp.grants import Discipline
from mtp.grants.ring import Parked, RingDiscipline, Share, Unit
from mtp.layouts import KEYS, Eager, Keyed, Layout, LayoutCache
from mtp.layouts.cache import GraphBackend
from mtp.policies import Policy, RotateGrow, StaticK

GROUPS = (
    "target",
    "drafter",
    "workload",
    "policy",
    "grant",
    "layout",
    "sampling",
    "device",
    "cost",
)
MOST_ON_TAPES = (1024, 4096)  # slots, rows


@dataclass(frozen=True)
class Settings:
    slots: int
    rows: int
    sizes: tuple[int, ...]
    buckets: Buckets
    max_new_tokens: int
    prefill_chunk: int
    seed: int
    parity: str
    plain: bool
    share: str
    plan: str

    @classmethod
    def of(cls, config: DictConfig, *, on_tapes: bool) -> Settings:
        """on_tapes: no kernel has to cope with the window. Raises BadInput: one line that names
        key, value and what is allowed."""
        values = OmegaConf.to_container(config, resolve=False)
        assert isinstance(values, dict)
        if missing := [name for name in cls.__annotations__ if name not in values] + [
            name for name in GROUPS if not values.get(name)
        ]:
            raise BadInput(f"{missing[0]} is missing, expected a value")
        most_slots, most_rows = MOST_ON_TAPES if on_tapes else _most_of_the_kernels()
        rows = integer("rows", values["rows"], 1, most_rows)
        sizes = tuple(integers("sizes", values["sizes"], 1))
        if 1 not in sizes or list(sizes) != sorted(set(sizes)):
            raise BadInput(
                f"sizes is {list(sizes)}, expected ascending group sizes with 1 among them"
            )
        try:
            buckets = Buckets.parse(values["buckets"], rows)
        except (TypeError, ValueError) as wrong:
            raise BadInput(str(wrong)) from wrong
        if max(buckets.sizes, default=0) > most_rows:
            raise BadInput(
                f"buckets is {list(buckets.sizes)}, expected row counts of at most {most_rows}"
            )
        for name in ("plain", "report"):
            if not isinstance(values.get(name), bool):
                raise BadInput(f"{name} is {values.get(name)!r}, expected true or false")
        for name in ("tag", "resume"):
            if isinstance(values.get(name), (list, dict)):
                raise BadInput(f"{name} is {values[name]}, expected one text")
        if values.get("resume") is None:
            raise BadInput("resume is null, expected auto, new or the folder of a sweep")
        return cls(
            slots=integer("slots", values["slots"], 1, most_slots),
            rows=rows,
            sizes=sizes,
            buckets=buckets,
            max_new_tokens=integer("max_new_tokens", values["max_new_tokens"], 1),
            prefill_chunk=integer("prefill_chunk", values["prefill_chunk"], 1),
            seed=integer("seed", values["seed"], 0),
            parity=choice("parity", values["parity"], ("exact", "report", "off")),
            plain=values["plain"],
            share=choice("share", values.get("share"), ("window", "tick")),
            plan=choice("plan", values["plan"], ("host", "device")),
        )


def _most_of_the_kernels() -> tuple[int, int]:
    from triton_kernels.launch import MOST_ROWS, MOST_SLOTS  # needs torch, which tapes do without

    return MOST_SLOTS, MOST_ROWS


@dataclass(frozen=True)
class LayoutSettings:
    """give_up_after None: 4 * capacity."""

    key: str
    capacity: int = 32
    capture_on: int = 2
    give_up_after: int | None = None

    @classmethod
    def of(cls, node: DictConfig) -> LayoutSettings:
        values = {str(name): value for name, value in node.items()}
        key = choice("layout.key", values.pop("key", None), ("off", *KEYS))
        if unknown := sorted(values.keys() - {"capacity", "capture_on", "give_up_after"}):
            raise BadInput(
                f"layout.{unknown[0]} is no key of a layout, expected key, capacity, capture_on or "
                "give_up_after"
            )
        numbers = {
            name: integer(f"layout.{name}", value, 1)
            for name, value in values.items()
            if value is not None
        }
        return cls(key, **numbers)

    def build(self, clock: Callable[[], float], graphs: Callable[[], GraphBackend]) -> Layout:
        """graphs: makes what captures; it is not asked with `layout=off`."""
        if self.key == "off":
            return Eager(clock)
        give_up_after = self.give_up_after or 4 * self.capacity
        cache = LayoutCache(
            self.capacity,
            graphs(),
            capture_on=self.capture_on,
            give_up_after=give_up_after,
            clock=clock,
        )
        return Keyed(self.key, cache)  # type: ignore[arg-type]


def check_grant(node: DictConfig, settings: Settings) -> None:
    """The settings of a discipline: what every one of them has."""
    if "budget" not in node:
        if settings.share == "tick":
            raise BadInput(
                "share is tick, but with grant=off nobody holds a grant: expected grant=rotate or "
                "another discipline"
            )
        return
    for name, least in (("budget", 0), ("skip_cap", 0), ("backlog", 0), ("holders", 1)):
        integer(f"grant.{name}", node.get(name), least)
    for name, allowed in (("unit", Unit), ("parked", Parked), ("share", Share)):
        choice(f"grant.{name}", node.get(name), get_args(allowed))
    if settings.slots < node.holders + node.backlog:
        raise BadInput(
            f"slots is {settings.slots}, expected at least {node.holders + node.backlog} "
            f"(grant.holders {node.holders} + grant.backlog {node.backlog})"
        )


def check_device_plan(
    policy: Policy, layout: LayoutSettings, grants: Discipline, on_tapes: bool
) -> None:
    """What `plan=device` can carry out."""
    if on_tapes:
        raise BadInput(
            "plan is device, but the workload is on tapes, where there is none: expected plan=host"
        )
    if not isinstance(policy, (RotateGrow, StaticK)):
        raise BadInput(
            f"plan is device, but policy is {type(policy).__name__}: expected policy=rotate_grow "
            "or static_k, or plan=host"
        )
    if layout.key not in ("rows", "off"):
        raise BadInput(
            f"plan is device, but layout.key is {layout.key}: expected rows or off, or plan=host"
        )
    if isinstance(grants, RingDiscipline) and (grants.share == "tick" or grants.parked_wait):
        raise BadInput(
            f"plan is device, but share is {grants.share} and grant.parked is {grants.parked}: "
            "expected share=window and grant.parked=plain, or plan=host"
        )
