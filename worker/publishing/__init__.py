"""Publishes snapshots, and recommends a method for each query."""
