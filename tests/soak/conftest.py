"""A soak is no test: ``make soak`` runs it; tests/integration/test_faults.py has the faults of it that are quick."""

collect_ignore_glob = ["*.py"]
