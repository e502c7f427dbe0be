"""Policies: how many rows each slot gets in a window, and how deep the drafter chains after it.
One file a policy."""

from mtp.policies.b1_gate import B1Gate
from mtp.policies.decided import check_decision
from mtp.policies.ema_length import EmaLength
from mtp.policies.least_confident_first import LeastConfidentFirst
from mtp.policies.measured_ab import MeasuredAB
from mtp.policies.planned.adaptive import Adaptive
from mtp.policies.planned.calibrated import Calibrated
from mtp.policies.planned.confidence import Confidence
from mtp.policies.planned.ewma import EwmaPolicy
from mtp.policies.planned.hindsight import Hindsight
from mtp.policies.planned.oracle import Oracle, TapeOracle
from mtp.policies.planned.oracle_p import OracleP
from mtp.policies.planned.planned_policy import PlannedPolicy
from mtp.policies.planned.shadow_beta import ShadowBeta
from mtp.policies.planned.survival_topk import SurvivalTopk
from mtp.policies.protocol import (
    Deciding,
    Decision,
    Declining,
    Learning,
    LivePolicy,
    Policy,
    SlotResult,
    WindowResult,
    declines_of,
)
from mtp.policies.record import Record
from mtp.policies.rotate_anchors_first import RotateAnchorsFirst
from mtp.policies.rotate_grow import RotateGrow
from mtp.policies.static_k import StaticK

__all__ = [
    "Adaptive",
    "B1Gate",
    "Calibrated",
    "Confidence",
    "Deciding",
    "Decision",
    "Declining",
    "EmaLength",
    "EwmaPolicy",
    "Hindsight",
    "Learning",
    "LeastConfidentFirst",
    "LivePolicy",
    "MeasuredAB",
    "Oracle",
    "OracleP",
    "PlannedPolicy",
    "Policy",
    "Record",
    "RotateAnchorsFirst",
    "RotateGrow",
    "ShadowBeta",
    "SlotResult",
    "StaticK",
    "SurvivalTopk",
    "TapeOracle",
    "WindowResult",
    "check_decision",
    "declines_of",
]
