"""The store: Redis and its scripts; the only place where counts are written."""
