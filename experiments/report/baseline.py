"""Against which arm an arm is measured."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.config.checks import BadInput
from experiments.report.arms import Arm, text
from experiments.report.runs import DATE


def parse_baseline(given: str | None) -> dict[str, str] | None:
    """`policy=static_k,policy.k=1` -> its keys and values."""
    if given is None:
        return None
    parts = [part.partition("=") for part in given.split(",")]
    if any(not (key.strip() and equals and value.strip()) for key, equals, value in parts):
        raise BadInput(
            f"--baseline is {given!r}, expected key=value pairs like policy=static_k,policy.k=1"
        )
    return {key.strip(): value.strip() for key, _, value in parts}


def baselines(arms: Sequence[Arm], wanted: dict[str, str] | None) -> dict[str, Arm]:
    """By label of an arm. Candidates have the wanted values and the arm's evidence; of these the
    one that agrees with the arm in most of the keys whose groups are not wanted; none where
    all others name another date in their prompts. Without a wish:
    plain decoding, else the first arm (of its policy, where policies vary). Raises BadInput
    where no arm is as wanted."""
    if wanted and arms and not any(matches(arm, wanted) for arm in arms):
        raise BadInput(
            f"--baseline {','.join(f'{key}={value}' for key, value in wanted.items())} fits no "
            "arm, expected values of "
            f"one of: {'; '.join(arm.label for arm in arms[:8])}"
        )
    found = {}
    for evidence in dict.fromkeys(arm.evidence for arm in arms):
        own = [arm for arm in arms if arm.evidence == evidence]
        wish = wanted or default_of(own)
        candidates = [arm for arm in own if matches(arm, wish) and arm.parity != "invalid"]
        free = {key.partition(".")[0] for key in wish}
        for arm in own:
            day = [other for other in candidates if other.values.get(DATE) == arm.values.get(DATE)]
            if day:
                found[arm.label] = min(day, key=lambda other: differing(arm, other, free))
    return found


def default_of(arms: Sequence[Arm]) -> dict[str, str]:
    if any(arm.plain for arm in arms):
        return {"policy": "static_k", "policy.k": "0"}
    first = arms[0].values
    policies = {arm.values.get("policy") for arm in arms}
    return (
        {key: value for key, value in first.items() if key == "policy" or key.startswith("policy.")}
        if len(policies) > 1
        else first
    )


def matches(arm: Arm, wanted: dict[str, str]) -> bool:
    config = arm.runs[0].config
    return all(
        value in (arm.values.get(key), text(config[key]) if key in config else None)
        for key, value in wanted.items()
    )


def differing(arm: Arm, other: Arm, free: set[str]) -> int:
    keys = {
        key for key in arm.values.keys() | other.values.keys() if key.partition(".")[0] not in free
    }
    return sum(arm.values.get(key) != other.values.get(key) for key in keys)
