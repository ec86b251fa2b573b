"""A long fuzz is no test: ``make fuzz`` runs it; the suite runs a short one of each subject."""

collect_ignore_glob = ["*.py"]
