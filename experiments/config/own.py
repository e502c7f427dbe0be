"""`policy=own`: a class of the user's is given what shipped policies are, as far as it takes it."""

from __future__ import annotations

import inspect
import os
from copy import deepcopy
from pkgutil import resolve_name

from omegaconf import DictConfig, open_dict

from experiments.config.fingerprint import NAME, content_of

OFFERED = {
    "sizes": "${sizes}",
    "cost": {"_target_": "mtp.costs.planning_cost", "of": "${cost}", "buckets": "${buckets}"},
}


def own_policy() -> str:
    """The class that `policy=own` names and what its file holds, in short."""
    return content_of(os.environ.get("MTPLAB_POLICY", ""))


def policy_node(config: DictConfig) -> DictConfig:
    """The config's policy: a shipped one as its YAML has it; a class of the user's with the group
    sizes and the estimated cost of the run, where it takes them and they are not given."""
    if NAME in config.policy:
        return config.policy
    try:
        taken = inspect.signature(resolve_name(config.policy._target_)).parameters.values()
    except Exception:  # what is wrong with it is reported where it is built
        return config.policy
    names = {parameter.name for parameter in taken}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
        names |= config.policy.keys()
    node: DictConfig = deepcopy(config).policy  # its references still lead to the config
    with open_dict(node):
        if "sizes" not in names and node.get("sizes") == config.sizes:  # own.yaml's, not asked for
            del node["sizes"]
        for name in names & OFFERED.keys() - node.keys():
            node[name] = OFFERED[name]
    return node
