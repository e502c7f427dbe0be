"""Training of a drafter for a frozen target.

Its texts and hidden rows are collected, a head is fitted to them, a sidecar written.
"""
