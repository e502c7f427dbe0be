"""Policies that plan a window from what it costs and how likely its drafts are."""
