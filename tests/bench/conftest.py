"""Keeps pytest from importing benchmarks, which `make bench` runs."""

collect_ignore_glob = ["*.py"]
