"""Check: everything that can be wrong around a worker, said before it hurts, with what to do about it.

The judgements (`judge_...`) are functions of what was described, so they can be tested without a cluster; only `look`
in `kafka` and `redis` asks. Of Kafka it asks by `worker.kafka.admin.cluster`, of Redis by its client.
"""

from worker.check.finding import Finding, Level
from worker.check.inspection import findings

__all__ = ["Finding", "Level", "findings"]
