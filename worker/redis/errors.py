"""Errors of the Redis client library, for code that does not import it."""

from redis import RedisError
from redis.exceptions import RedisClusterException

ERRORS = (RedisError, RedisClusterException)
"""Raised if Redis refuses a request or does not answer, or if no node of a cluster serves the key."""
