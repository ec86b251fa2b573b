"""The snapshot topic and the topic of rows: one transaction a snapshot out, and every reader of them."""
