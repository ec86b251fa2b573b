"""A table is no test: ``python -m tests.coverage`` prints it, pytest is not even to import it."""

collect_ignore_glob = ["*.py"]
