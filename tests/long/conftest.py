"""Long runs are commands of the Makefile and no tests: pytest does not import them."""

collect_ignore_glob = ["*"]
