"""Containers are no tests: `make containers` runs them, pytest is not even to import them."""

collect_ignore_glob = ["*.py"]
