"""Grants: who may speculate now, as one cap per slot. 0 = not in this window, 1 = its anchor only, None = no cap."""

from mtp.grants.everyone import Everyone

__all__ = ["Everyone"]
