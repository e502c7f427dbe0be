"""A config: its values checked, its overrides read, its objects built."""
