"""A config becomes objects, once, at the edge."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate, to_absolute_path
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tokenizers import Tokenizer

from experiments.chat import chat_of
from experiments.checks import BadInput, choice, integer
from experiments.settings import LayoutSettings, Settings, check_device_plan, check_grant
from experiments.studies.study import Study
from experiments.tape_set import TapeWorkload
from experiments.workloads import PromptFile
from mtp.costs import Cost
from mtp.drafters.protocol import Drafter
from mtp.drafters.qwen_mtp import MAX_DEPTH
from mtp.grants import Discipline, Everyone
from mtp.policies import Policy, Record, TapeOracle
from mtp.request import Request
from mtp.targets import check_target
from mtp.targets.protocol import Target

SMALL = 32_000_000  # parameters
DEFAULT_THREADS = torch.get_num_threads()  # before any job changes it


@dataclass(frozen=True)
class Plan:
    """What needs no model: checked for every job before any starts. workload: on tapes, a run needs nothing else; study: then all
    but its own settings is left aside."""

    settings: Settings
    policy: Policy
    layout: LayoutSettings
    grants: Discipline
    workload: PromptFile | TapeWorkload
    device: torch.device
    cost: Cost
    study: Study | None = None


@dataclass(frozen=True)
class Setup:
    plan: Plan
    target: Target
    drafter: Drafter | None
    load_drafter: Callable[[], Any]
    tokenizer: Tokenizer | None
    requests: list[Request]


def plan_of(config: DictConfig) -> Plan:
    """Raises BadInput for any value that cannot be used."""
    on_tapes = brings_tapes(config)
    settings = Settings.of(config, on_tapes=on_tapes)
    only_keys("sampling", config.sampling, {"kind"})
    only_keys("device", config.device, {"name", "threads"})
    choice("sampling.kind", config.sampling.get("kind"), ("greedy",))
    cost = build(config.cost, "cost")
    workload = build(absolute(config.workload), "workload")
    policy = policy_of(config, workload, settings) if on_tapes else build(config.policy, "policy")
    if not isinstance(policy, Policy):
        raise BadInput(f"policy is {config.policy.get('_target_')}, which needs tapes, expected another or workload=synthetic or recorded")
    if policy.depth > MAX_DEPTH:
        raise BadInput(f"the policy drafts {policy.depth} tokens, expected at most {MAX_DEPTH}")
    if settings.rows < min(policy.sizes):
        raise BadInput(f"rows is {settings.rows}, expected at least the smallest group size ({min(policy.sizes)})")
    layout = LayoutSettings.of(config.layout)
    check_grant(config.grant, settings)
    grants = build(config.grant, "grant")
    if settings.plan == "device":
        check_device_plan(policy, layout, grants, on_tapes)
    if isinstance(policy, Record) and (on_tapes or not isinstance(grants, Everyone)):
        raise BadInput("policy=record needs a target, a drafter and grant=off: drafts that are not made cannot be recorded")
    plan = Plan(settings, policy, layout, grants, workload, device_of(config.device), cost, study_of(config))
    if on_tapes:
        return plan
    # every line is read, whatever its text will encode to
    workload.load(lambda text: [0] if text else [], max_new_tokens=settings.max_new_tokens, seed=settings.seed)
    checked_target(config.target)
    return plan


def study_of(config: DictConfig) -> Study | None:
    if config.study is None:
        return None
    study = build(config.study, "study")
    if not isinstance(study, Study):
        raise BadInput(f"study is {config.study.get('_target_')}, expected one of experiments/studies")
    return study


def policy_of(config: DictConfig, workload: TapeWorkload, settings: Settings) -> Policy:
    """A policy on tapes; those that plan with what only tapes know (`_partial_: true`) are handed them."""
    made = workload.tapes(max_new_tokens=settings.max_new_tokens, seed=settings.seed)
    oracle = TapeOracle(made.tapes, probabilities=made.evidence == "synthetic")
    policy = build(config.policy, "policy", **({"oracle": oracle} if config.policy.get("_partial_", False) else {}))
    if policy.depth > made.depth:
        raise BadInput(f"the policy drafts {policy.depth} tokens, expected at most {made.depth} (the depth of these tapes)")
    return policy


def brings_tapes(config: DictConfig) -> bool:
    """Whether the workload says that it needs no model. What is wrong with it is said when it is built."""
    try:
        return bool(getattr(get_object(config.workload._target_), "on_tapes", False))
    except Exception:
        return False


def setup(plan: Plan, config: DictConfig) -> Setup:
    """Loads target, drafter and prompts. Raises BadInput as above."""
    settings = plan.settings
    assert isinstance(plan.workload, PromptFile)
    rows = max((settings.rows, *settings.buckets.sizes))
    target = build(absolute(config.target), "target", slots=settings.slots, device=plan.device, rows=rows)
    torch.set_num_threads(config.device.threads or threads_for(target))

    def load_drafter() -> Drafter | None:
        return build(absolute(config.drafter), "drafter", target=target, buckets=settings.buckets)

    drafter = load_drafter() if plan.policy.depth > 0 else None
    if drafter is None and isinstance(plan.policy, Record):
        raise BadInput("drafter is none, expected one whose drafts policy=record can record")
    tokenizer_file = Path(folder("target.path", config.target)) / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(tokenizer_file)) if tokenizer_file.exists() else None

    chat = chat_of(tokenizer_file.parent, plan.workload.chat)

    def encode(text: str) -> list[int]:
        if tokenizer is None:
            raise ValueError(f"prompt is text, but {tokenizer_file} does not exist: give prompt_ids")
        if chat is not None:  # a template writes the special tokens itself
            return tokenizer.encode(chat(text), add_special_tokens=False).ids
        return tokenizer.encode(text).ids

    requests = plan.workload.load(encode, max_new_tokens=settings.max_new_tokens, seed=settings.seed)
    return Setup(plan, target, drafter, load_drafter, tokenizer, requests)


def checked_target(node: DictConfig) -> None:
    """All that can be refused before weights are read."""
    path = folder("target.path", node)
    only_keys("target", node, {"_target_", "_partial_", "path", "context", "dtype"})
    try:
        check_target(path, context=node.get("context"), dtype=node.get("dtype", "auto"))
    except ValueError as wrong:
        raise BadInput(one_line(wrong, "target")) from wrong


def only_keys(group: str, node: DictConfig, known: set[str]) -> None:
    if unknown := sorted(set(map(str, node)) - known):
        raise BadInput(
            f"{group}.{unknown[0]} is no key of {group}, expected {' or '.join(sorted(name for name in known if name[0] != '_'))}"
        )


def threads_for(target: Target) -> int:
    """torch's own choice, but one for a model whose products are too small to be shared: there threads mostly wait."""
    parameters = sum(weight.numel() for weight in target.linear_weights())
    return 1 if parameters < SMALL else DEFAULT_THREADS


def build(node: DictConfig, name: str, **arguments: Any) -> Any:
    """Instantiate a config node; what its constructor refuses becomes one line."""
    try:
        made = instantiate(node, _convert_="all")
        if arguments:
            known = inspect.signature(made.func).parameters
            if unknown := sorted(made.keywords.keys() - known.keys()):
                raise BadInput(f"{name}.{unknown[0]} is no key of {name}, expected one of {', '.join(known.keys() - arguments.keys())}")
        return made(**arguments) if arguments else made
    except InstantiationException as wrong:
        cause = wrong.__cause__ or wrong
        if isinstance(cause, (ValueError, TypeError, OSError, ImportError)):
            raise BadInput(one_line(cause, name)) from wrong
        raise
    except (ValueError, OSError, OmegaConfBaseException) as wrong:
        raise BadInput(one_line(wrong, name)) from wrong


def one_line(wrong: BaseException, name: str) -> str:
    text = " ".join(str(wrong).split())
    return text if isinstance(wrong, BadInput) else f"{name}: {text}"


def absolute(node: DictConfig) -> DictConfig:
    """Relative paths are the launch folder's, whatever the working folder of the job."""
    paths = {name: to_absolute_path(str(node[name])) for name in ("path", "trace") if node.get(name, None) is not None}
    return OmegaConf.merge(node, paths)  # type: ignore[return-value]


def folder(key: str, node: DictConfig) -> str:
    if OmegaConf.is_missing(node, "path"):
        raise BadInput(f"{key} is not given, expected a checkpoint folder")
    path = to_absolute_path(str(node.path))
    if not Path(path).is_dir():
        raise BadInput(f"{key} is {node.path}, expected an existing checkpoint folder")
    return path


def device_of(node: DictConfig) -> torch.device:
    name = choice("device.name", node.name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("device.name is cuda, but torch finds no GPU here, expected auto or cpu")
    if node.threads is not None:
        integer("device.threads", node.threads, 1)
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
