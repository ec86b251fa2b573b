"""The client library: what it gets wrong, the raw fetch, connecting, topics, errors, and one reader of our topics."""
