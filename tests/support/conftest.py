"""Fakes, harnesses and drawing of tests; pytest collects no test here."""

collect_ignore_glob = ["*"]
