"""Outcome of each broker error code for a worker, and its page.

`tests/unit/worker/test_refusals.py` injects every code of `OUTCOMES` into the client's own handlers.
"""

from docs.generate.markdown import fill, table

OTHERS = None
"""Key of all codes without a specific outcome."""

WAITS = "the partition waits and the worker asks again; the other partitions continue"
CLAIMED = "the worker releases the partition and claims it again"
ALL_WAIT = "the requested partitions wait and the worker asks again"
SESSION = "the client starts a new fetch session"
RETRIED = "the worker retries the claim"
NOT_OWNER = "the worker abandons the claim: it is no longer a member of the group"
KEPT = "the worker keeps the last metadata of the topic and asks again; `/readyz` names the cause"
MISSING = "the topic counts as missing until an answer contains it"
CLOSED = "the topic is closed to this client, and `/readyz` reports this"

_GROUP: dict[int | None, str] = {14: RETRIED, 15: RETRIED, 16: RETRIED, 24: RETRIED, 30: RETRIED, 69: RETRIED}
_MEMBER: dict[int | None, str] = {
    22: NOT_OWNER,
    25: NOT_OWNER,
    27: NOT_OWNER,
    82: NOT_OWNER,
    110: RETRIED,
    113: RETRIED,
}
OUTCOMES: dict[str, dict[int | None, str]] = {
    "Fetch, of a partition": {1: CLAIMED, OTHERS: WAITS},
    "Fetch, as a whole": {70: SESSION, 71: SESSION, 106: SESSION, OTHERS: ALL_WAIT},
    "ListOffsets": {OTHERS: WAITS},
    "OffsetFetch, of a partition": {**_GROUP, **_MEMBER, OTHERS: WAITS},
    "OffsetFetch, as a whole": {**_MEMBER, 110: RETRIED, 113: RETRIED, OTHERS: RETRIED},
    "OffsetCommit": {**_GROUP, **_MEMBER, OTHERS: WAITS},
    "Metadata, of a topic": {3: MISSING, 29: CLOSED, OTHERS: KEPT},
}

AGAIN = "the worker publishes the snapshot again with a new producer"
PUBLISHING: dict[str, dict[int | None, str]] = {
    "InitProducerId": {OTHERS: AGAIN},
    "AddPartitionsToTxn": {OTHERS: AGAIN},
    "EndTxn": {OTHERS: AGAIN},
}
"""Outcomes for a publisher; `tests/integration/kafka/test_error_codes.py` injects some codes of each."""


def page() -> str:
    """Returns the page of error codes and wrong answers of brokers."""
    rows = [("answer", "codes", "what happens")]
    for answer, outcomes in (OUTCOMES | PUBLISHING).items():
        codes: dict[str, list[str]] = {}
        for code, outcome in outcomes.items():
            if code is OTHERS or outcome != outcomes[OTHERS]:
                others = "every other" if len({*outcomes.values()}) > 1 else "all"
                codes.setdefault(outcome, []).append(others if code is OTHERS else str(code))
        rows += [(answer, ", ".join(some), outcome) for outcome, some in codes.items()]
    return fill("broker-errors.md", codes=table(*rows))
