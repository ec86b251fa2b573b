"""``make kills`` runs all points; test_kill_points.py has a few."""

collect_ignore_glob = ["*.py"]
