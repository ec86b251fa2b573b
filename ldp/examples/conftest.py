"""Ignores the examples here; tests/unit/ldp/test_examples.py runs them."""

collect_ignore_glob = ["*.py"]
