"""The state of a cluster for `check`."""
