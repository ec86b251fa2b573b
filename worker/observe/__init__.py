"""Logs, metrics, progress and readiness of a worker."""
