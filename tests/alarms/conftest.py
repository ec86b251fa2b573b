"""A simulation is no test: ``python -m tests.alarms`` runs it, pytest is not even to import it."""

collect_ignore_glob = ["*.py"]
