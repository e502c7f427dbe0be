"""Policies: how many rows each slot gets in a window, and how deep the drafter chains after it. One file a policy."""

from mtp.policies.protocol import Decision, Declining, Learning, Part, Policy, Seen
from mtp.policies.record import Record
from mtp.policies.rotate_grow import RotateGrow
from mtp.policies.static_k import StaticK

__all__ = ["Decision", "Declining", "Learning", "Part", "Policy", "Record", "RotateGrow", "Seen", "StaticK"]
