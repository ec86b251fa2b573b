"""Clients are no tests: tests/unit/ldp/test_conformance.py judges them, and ``python -m tests.clients``."""

collect_ignore_glob = ["*.py"]
