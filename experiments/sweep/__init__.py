"""Sweeps: many jobs, each in a process and a folder of its own; they can be killed at any moment
and go on."""
