"""Jobs are no tests: tests/integration/test_engines.py runs them, in an environment of their own."""

collect_ignore_glob = ["*.py"]
