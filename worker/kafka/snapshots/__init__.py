"""Publishes and reads the topics of snapshots and of rows."""
