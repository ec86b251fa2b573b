"""Excludes the examples, which tests/unit/ldp/test_examples.py runs."""

collect_ignore_glob = ["*.py"]
