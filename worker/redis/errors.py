"""What the client library of Redis raises, for those that do not know the library."""

from redis import RedisError
from redis.exceptions import RedisClusterException

ERRORS = (RedisError, RedisClusterException)
"""Redis refused, or did not answer; of a cluster nobody did, or nobody has the partition."""
