"""Snapshot and row topics: one transaction per snapshot, and the readers."""
