"""Harnesses, worlds and drawing of tests; pytest collects none here."""

collect_ignore_glob = ["*"]
