"""Examples are programs, not modules: ``tests/unit/ldp/test_examples.py`` runs them."""

collect_ignore_glob = ["*.py"]
