"""What is observed: metrics, logs, and what readiness says."""
