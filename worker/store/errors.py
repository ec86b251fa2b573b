"""What the client library of Redis raises, for those that do not know the library."""

from redis import RedisError

StoreError = RedisError
"""Redis refused, or did not answer."""
