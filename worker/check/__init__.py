"""Check: validates configuration, machine, Kafka, Redis and stored counts before a worker runs.

The `judge_...` functions need no cluster; only `look` in `kafka` and `redis` connects.
"""

from worker.check.finding import Finding, Level
from worker.check.inspection import findings

__all__ = ["Finding", "Level", "findings"]
