"""Benchmarks are no tests: `make bench` runs them, pytest is not even to import them."""

collect_ignore_glob = ["*.py"]
