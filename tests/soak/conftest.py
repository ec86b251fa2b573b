"""``make soak`` runs the soak; test_faults.py has its quick faults."""

collect_ignore_glob = ["*.py"]
