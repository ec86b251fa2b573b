"""The Redis store with methods for one partition that raise the error of its step."""

from typing import TypeVar

from worker.counting.ports import Answer, Failure, Metadata, StateLost, StoredPartition, Unavailable
from worker.store.redis import RedisStore

T = TypeVar("T")


class Singly(RedisStore):
    """A store with each step for one partition."""

    def claim(self, partition: int, found: Metadata | None, initial: Metadata) -> StoredPartition | None:
        return _came(self.claim_all({partition: (found, initial)})[partition])

    def promote(self, partition: int, attempt: str, before: Metadata, after: Metadata) -> Answer:
        return _came(self.promote_all({partition: (attempt, before, after)})[partition])

    def compare(self, partition: int, held: Metadata) -> Answer:
        return _came(self.compare_all({partition: held})[partition])

    def cut(self, partition: int) -> StoredPartition | None:
        return _came(self.cut_all([partition])[partition])


def _came(outcome: T | Failure) -> T:
    if isinstance(outcome, Unavailable | StateLost):
        raise outcome
    return outcome
