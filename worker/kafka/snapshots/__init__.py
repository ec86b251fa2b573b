"""The topics of snapshots and rows: one transaction per snapshot, and the readers."""
