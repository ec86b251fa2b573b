"""The client library: its defects, the raw fetch, connections, topics, errors, and a reader of the worker's topics."""
