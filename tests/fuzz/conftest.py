"""``make fuzz`` runs the long fuzz; the suite has short ones."""

collect_ignore_glob = ["*.py"]
