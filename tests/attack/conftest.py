"""An attack is no test: ``python -m tests.attack`` runs it, pytest is not even to import it."""

collect_ignore_glob = ["*.py"]
