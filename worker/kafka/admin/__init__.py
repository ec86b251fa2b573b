"""What `check` asks of a cluster."""
