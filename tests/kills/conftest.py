"""All kill points are no test: ``make kills`` runs them; tests/integration/test_kill_points.py has a few."""

collect_ignore_glob = ["*.py"]
