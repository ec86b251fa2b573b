"""Clients and their faults are no tests: tests/unit/ldp/test_judging.py judges them, ``python -m tests.clients`` too."""

collect_ignore_glob = ["*.py"]
