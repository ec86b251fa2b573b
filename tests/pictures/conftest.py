"""Pictures are no tests: ``python -m tests.pictures`` draws them."""

collect_ignore_glob = ["*.py"]
