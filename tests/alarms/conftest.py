"""Keeps pytest from importing a simulation; ``python -m tests.alarms`` runs it."""

collect_ignore_glob = ["*.py"]
