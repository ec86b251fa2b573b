"""Audit: recounts the log and compares it with Redis and the snapshots.

The audit imports only configuration, login and the Redis connection from this project. It reimplements every
format, hash and formula, so that it does not repeat an error of the worker.

One script reads a partition's counts and offset atomically from Redis. The audit recounts the partition up to that
offset, so its verdict is correct even while workers count. If retention deleted counted records, the audit compares
the counts with the remaining records only.

Only `reading` uses Kafka and Redis. `verification` audits a stream, `comparison` audits a partition, and `published`
audits the snapshots.
"""

from worker.audit.errors import AuditError
from worker.audit.verdict import VERDICTS, PartitionVerdict, StreamVerdict
from worker.audit.verification import verify

__all__ = ["VERDICTS", "AuditError", "PartitionVerdict", "StreamVerdict", "verify"]
