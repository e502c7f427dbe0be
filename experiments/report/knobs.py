"""What was turned, of an arm: its policy, with the policy's own keys, is one knob; every other
key that varies is another."""

from __future__ import annotations

from experiments.report.headline import ReportRow


def policy_of(row: ReportRow) -> str:
    own = {key: value for key, value in row.arm.values.items() if key.partition(".")[0] == "policy"}
    return " ".join(
        f"{key.partition('.')[2]}={value}" if "." in key else value for key, value in own.items()
    )


def others_of(row: ReportRow) -> dict[str, str]:
    return {
        key: value for key, value in row.arm.values.items() if key.partition(".")[0] != "policy"
    }


def knobs_of(row: ReportRow) -> dict[str, str]:
    return {"policy": policy_of(row)} | others_of(row)
