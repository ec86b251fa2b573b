"""Audit: recounts the log and compares it with Redis and the snapshots.

The audit imports only configuration, login and the Redis connection from this project. It implements every format,
hash and formula again, so that an error in the worker cannot hide itself.

One script reads a partition's counts and offset atomically from Redis. The audit recounts the partition up to that
offset, so its verdict is also right while workers count. Counted records that retention deleted cannot be recounted;
for such a partition the audit compares the remaining records.

Only `reading` uses Kafka and Redis. `verification` audits a stream, `comparison` a partition, `published` the
snapshots.
"""

from worker.audit.errors import AuditError
from worker.audit.verdict import VERDICTS, PartitionVerdict, StreamVerdict
from worker.audit.verification import verify

__all__ = ["VERDICTS", "AuditError", "PartitionVerdict", "StreamVerdict", "verify"]
