"""Excludes the jobs, which tests/integration/test_engines.py runs in their own environment."""

collect_ignore_glob = ["*.py"]
