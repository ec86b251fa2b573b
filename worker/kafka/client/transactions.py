"""Connects transactional producers, and sends their records."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka import KafkaProducer

from worker.kafka.client import quirks, reading

TIMEOUT_SECONDS = 30  # Longest wait for an answer, and shortest transaction time-out

_BYTES_PER_SECOND = 16 << 20
"""Lowest expected rate of a producer: less than half of the rate measured on two cores shared with the broker."""
_MOST_WAITING = 32 << 20  # Most bytes of unacknowledged records


def transaction_seconds(most_bytes: int) -> int:
    """Returns the time-out of a transaction of `most_bytes`, in seconds.

    Example:
        >>> transaction_seconds(128_000_000), transaction_seconds(3_584_000_000)
        (30, 214)
    """
    return max(TIMEOUT_SECONDS, -(-most_bytes // _BYTES_PER_SECOND))


def connect(
    settings: Mapping[str, Any], transactional_id: str, client_id: str, most_bytes: int, compression: str
) -> Any:
    """Connects a producer; `init_transactions` fences off its predecessor."""
    quirks.mend_connections()
    producer = KafkaProducer(
        **settings,
        client_id=client_id,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_seconds(most_bytes) * 1000,
        delivery_timeout_ms=TIMEOUT_SECONDS * 1000,
        request_timeout_ms=TIMEOUT_SECONDS * 1000 // 2,
        max_block_ms=TIMEOUT_SECONDS * 1000,
        **quirks.compress(compression),
        linger_ms=5,
        max_request_size=reading.LARGEST,
        allow_auto_create_topics=False,
    )
    quirks.retry_lost_requests(producer)
    quirks.refuse_end_retries(producer)
    return producer


def send(
    producer: Any, records: Iterable[Mapping[str, Any]], heartbeat: Callable[[], object] = lambda: None
) -> list[Any]:
    """Sends records; bounds unacknowledged bytes so that no record expires.

    `records`: arguments of the producer's `send`. Returns the futures of the acknowledgements.
    """
    sent, waiting, size = list[Any](), deque[tuple[Any, int]](), 0
    for record in records:
        heartbeat()
        while size > _MOST_WAITING:
            oldest, freed = waiting.popleft()
            oldest.get(TIMEOUT_SECONDS)
            size -= freed
        sent.append(producer.send(**record))
        waiting.append((sent[-1], len(record["value"] or b"")))
        size += waiting[-1][1]
    return sent
