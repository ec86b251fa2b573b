"""Keeps pytest from importing the clients; tests/unit/ldp/test_conformance.py runs them."""

collect_ignore_glob = ["*.py"]
