"""What a config asks for, checked as far as can be without loading anything. Jobs on tapes need
no torch at all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from hydra.utils import get_object
from omegaconf import DictConfig

from experiments.config.build import absolute, build, folder, known_keys, one_line, only_keys
from experiments.config.checks import BadInput, choice, integer
from experiments.config.own import policy_node
from experiments.runs.settings import LayoutSettings, Settings, check_device_plan, check_grant
from experiments.runs.trace import ProfileSettings
from experiments.studies.study import Study
from experiments.workloads.prompt_file import PromptFile
from experiments.workloads.tape_set import TapeWorkload
from mtp.costs import Cost, FreeDrafts
from mtp.executor import MAX_DEPTH
from mtp.grants import Discipline, Everyone
from mtp.policies import PlannedPolicy, Policy, Record, TapeOracle

if TYPE_CHECKING:
    import torch

    from mtp.targets.loading.checkpoint import Checkpoint


@dataclass(frozen=True)
class RunSpec:
    """What needs no model: checked for every job before any starts."""

    settings: Settings
    policy: Policy
    layout: LayoutSettings
    grants: Discipline
    workload: PromptFile | TapeWorkload  # on tapes: a run then needs nothing else, and no device
    device: torch.device | None
    cost: Cost
    profile: ProfileSettings
    study: Study | None = None  # then everything but its own settings is left aside


def run_spec(config: DictConfig) -> RunSpec:
    """Raises BadInput for any value that cannot be used."""
    on_tapes = brings_tapes(config)
    settings = Settings.of(config, on_tapes=on_tapes)
    only_keys("sampling", config.sampling, {"kind"})
    only_keys("device", config.device, {"name", "threads"})
    choice("sampling.kind", config.sampling.get("kind"), ("greedy",))
    cost = build(absolute(config.cost), "cost")
    workload = build(absolute(config.workload), "workload")
    policy = (
        policy_of(config, workload, settings)
        if on_tapes
        else at_own_price(build(absolute(policy_node(config)), "policy"), config.drafter)
    )
    if not isinstance(policy, (Policy, partial)):
        lacks = next(name for name in ("sizes", "depth", "decide") if not hasattr(policy, name))
        raise BadInput(
            f"policy is {config.policy.get('_target_')}, which has no {lacks}, expected a class "
            "with sizes, depth and decide (docs/write-a-policy.md)"
        )
    if not isinstance(policy, Policy):
        raise BadInput(
            f"policy is {config.policy.get('_target_')}, which needs tapes, expected another or "
            "workload=synthetic or recorded"
        )
    if policy.depth > MAX_DEPTH:
        raise BadInput(f"the policy drafts {policy.depth} tokens, expected at most {MAX_DEPTH}")
    if settings.rows < min(policy.sizes):
        raise BadInput(
            f"rows is {settings.rows}, expected at least the smallest group size "
            f"({min(policy.sizes)})"
        )
    if max(policy.sizes) > max(settings.sizes):
        raise BadInput(
            f"sizes is {list(settings.sizes)}, but the policy gives groups of {max(policy.sizes)} "
            "rows, expected sizes with as many"
        )
    layout = LayoutSettings.of(config.layout)
    check_grant(config.grant, settings)
    grants = build(config.grant, "grant")
    if settings.plan == "device":
        check_device_plan(policy, layout, grants, on_tapes)
    if isinstance(policy, Record) and (on_tapes or not isinstance(grants, Everyone)):
        raise BadInput(
            "policy=record needs a target, a drafter and grant=off: drafts that are not made "
            "cannot be recorded"
        )
    profile = ProfileSettings.of(config.get("profile"))
    if profile.windows and config.study is not None:
        raise BadInput(
            f"profile.windows is {profile.windows}, but a study is many runs, expected 0"
        )
    spec = RunSpec(
        settings,
        policy,
        layout,
        grants,
        workload,
        device_of(config.device, on_tapes),
        cost,
        profile,
        study_of(config),
    )
    if on_tapes:
        return spec
    # every line is read, whatever its text will encode to
    workload.load(
        lambda text: [0] if text else [], max_new_tokens=settings.max_new_tokens, seed=settings.seed
    )
    checkpoint = checked_target(config.target)
    if policy.depth > 0:
        checked_drafter(config.drafter, checkpoint)
    return spec


def at_own_price(policy: Policy, drafter: DictConfig) -> Policy:
    """The policy of a run, which believes what this drafter's drafts cost: a cost model's price is
    that of a head, prompt look-up runs no forward."""
    if isinstance(policy, PlannedPolicy) and drafter.get("_name_") == "load_prompt_lookup":
        return replace(policy, cost=FreeDrafts(policy.cost))
    return policy


def study_of(config: DictConfig) -> Study | None:
    if config.study is None:
        return None
    study = build(config.study, "study")
    if not isinstance(study, Study):
        raise BadInput(
            f"study is {config.study.get('_target_')}, expected one of experiments/studies"
        )
    return study


def policy_of(config: DictConfig, workload: TapeWorkload, settings: Settings) -> Policy:
    """A policy on tapes; those that plan with what only tapes know (`_partial_: true`) are
    handed them."""
    made = workload.tapes(max_new_tokens=settings.max_new_tokens, seed=settings.seed)
    oracle = TapeOracle(made.tapes, probabilities=made.evidence == "synthetic")
    policy = build(
        absolute(policy_node(config)),
        "policy",
        **({"oracle": oracle} if config.policy.get("_partial_", False) else {}),
    )
    if policy.depth > made.depth:
        raise BadInput(
            f"the policy drafts {policy.depth} tokens, expected at most {made.depth} (the depth of "
            "these tapes)"
        )
    return policy


def brings_tapes(config: DictConfig) -> bool:
    """Whether the workload says that it needs no model. What is wrong with it is reported when it
    is built."""
    try:
        return bool(getattr(get_object(config.workload._target_), "on_tapes", False))
    except Exception:
        return False


def checked_target(node: DictConfig) -> Checkpoint:
    """All that can be refused before weights are read."""
    from mtp.targets import check_target

    path = folder("target.path", node)
    only_keys("target", node, {"_target_", "_partial_", "path", "context", "dtype"})
    try:
        return check_target(path, context=node.get("context"), dtype=node.get("dtype", "stored"))
    except ValueError as wrong:
        raise BadInput(one_line(wrong, "target")) from wrong


def checked_drafter(node: DictConfig, target: Checkpoint) -> None:
    """The same, and whether it fits the target."""
    from mtp.drafters import CHECKS

    if "path" in list(node):
        folder("drafter.path", node)
    made = build(absolute(node), "drafter")
    known_keys(made, "drafter", {"target", "buckets"})
    if (check := CHECKS.get(made.func)) is not None:
        try:
            check(target=target, **made.keywords)
        except ValueError as wrong:
            raise BadInput(one_line(wrong, "drafter")) from wrong


def device_of(node: DictConfig, on_tapes: bool) -> torch.device | None:
    name = choice("device.name", node.name, ("auto", "cpu", "cuda"))
    if node.threads is not None:
        integer("device.threads", node.threads, 1)
    if on_tapes:
        return None
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("device.name is cuda, but torch finds no GPU here, expected auto or cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
