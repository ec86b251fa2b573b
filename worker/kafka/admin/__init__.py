"""Describes a cluster for ``ldp-worker check``."""
