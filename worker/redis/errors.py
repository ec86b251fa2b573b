"""Errors of the Redis client library, for code that does not import it."""

from redis import RedisError
from redis.exceptions import RedisClusterException

ERRORS = (RedisError, RedisClusterException)
"""Redis refused a request or did not answer, or no node of a cluster answers or has the key."""
