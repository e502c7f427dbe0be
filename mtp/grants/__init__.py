"""Grants: who may speculate now, and for how long. One file a discipline; see docs/grants.md."""

from mtp.grants.drr import Drr
from mtp.grants.everyone import Everyone
from mtp.grants.fifo import Fifo
from mtp.grants.protocol import Discipline, Grants, Turn
from mtp.grants.ring import Ring
from mtp.grants.rotate import Rotate
from mtp.grants.rules import backlog_admits, grant_expired, next_grant_index
from mtp.grants.schedule import Job, grant_schedule
from mtp.grants.srpt import Srpt
from mtp.grants.strict import Strict
from mtp.grants.vtc import Vtc

__all__ = [
    "Discipline",
    "Drr",
    "Everyone",
    "Fifo",
    "Grants",
    "Job",
    "Ring",
    "Rotate",
    "Srpt",
    "Strict",
    "Turn",
    "Vtc",
    "backlog_admits",
    "grant_expired",
    "grant_schedule",
    "next_grant_index",
]
