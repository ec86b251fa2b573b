"""Audit: recounts the log and compares it with Redis and with the published snapshots, bit for bit.

The audit shares no code with what it audits. From this project it imports only configuration, login and the
connection to Redis. Every format, hash and formula is therefore stated twice in this project, here the second time.

Each partition is read from Redis in one script, so its counts and its offset belong together, and is recounted to that
offset. The audit is right while workers count on. Records that retention deleted after they were counted cannot be
recounted; for such a partition, the audit compares what remains.

Only `reading` uses Kafka and Redis. `verification` audits a stream, `comparison` a partition, `published` the
snapshots.
"""

from worker.audit.errors import AuditError
from worker.audit.verdict import VERDICTS, PartitionVerdict, StreamVerdict
from worker.audit.verification import verify

__all__ = ["VERDICTS", "AuditError", "PartitionVerdict", "StreamVerdict", "verify"]
