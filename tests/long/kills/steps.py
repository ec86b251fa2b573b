"""Numbered steps of claim, commit, publish and import, as calls.

The numbers are those of the docstrings; tests/unit/worker/counting compares them. A step is found by its turn, its
call, and the number of such calls before it in the turn. Heeding a head has turns and numbers only here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

EVER = 1 << 30

LOG, DEAD_LETTERS = "worker.kafka.reports.log:KafkaLog", "worker.kafka.dead_letters.writer:KafkaDeadLetters"
STORE, SNAPSHOT_PRODUCER = (
    "worker.store.redis:RedisStore",
    "worker.kafka.snapshots.producer:KafkaSnapshotProducer",
)
PUBLISHER, PRODUCER = "worker.publishing.publisher:Publisher", "kafka:KafkaProducer"
PLAN = "worker.publishing.planning:Plan"
EVENTS, STATE = "worker.observe.events:StreamEvents", "worker.counting.partition_state:PartitionState"
WINDOWS = "worker.counting.window_state:WindowState"
IMPORT, NON_MEMBER = (
    "worker.importing:Import",
    "worker.kafka.reports.non_member_log:KafkaNonMemberLog",
)

TURNS = {
    "claim": [("worker.counting.ownership:Ownership", "claim")],
    "commit": [("worker.counting.ownership:Ownership", name) for name in ("prepare", "write", "settle")],
    "publish": [(PUBLISHER, "tick")],
    "heed": [("worker.counting.ownership:Ownership", "_apply_head")],
    "import": [(IMPORT, "run")],
    "intake": [
        ("worker.service.shuffle:StreamShuffler", "_serve"),
        ("worker.shuffling.partition:OwnedIntake", "claim"),
    ],
    "upload": [
        *(
            ("worker.gateway.application:Application", name)
            for name in ("_forward", "_body", "_framed", "_acknowledge")
        ),
        *(("worker.kafka.intake.sender:IntakeSender", name) for name in ("send", "replace")),
    ],
    "batch": [("worker.shuffling.partition:OwnedIntake", name) for name in ("step", "tidy")],
}
"""Turns of each thread: calls within a turn, on its thread, are the steps."""


@dataclass(frozen=True)
class Step:
    """Step, and the call that it consists of."""

    turn: str  # claim, commit, publish, heed or import
    number: int
    owner: str  # the module, and after a colon the class of a method
    call: str
    first: int = 1  # calls of this name in a turn from which on it is this step
    last: int = EVER
    each: bool = False  # whether it is made for each partition or message


STEPS = [
    Step("claim", 1, LOG, "topic_id"),
    Step("claim", 2, LOG, "committed"),
    Step("claim", 3, STORE, "peek_all"),
    Step("claim", 4, SNAPSHOT_PRODUCER, "head"),
    Step("claim", 5, LOG, "bounds", 1, 1),
    Step("claim", 6, LOG, "confirm"),
    Step("claim", 7, LOG, "generation", 2, 2),
    Step("claim", 8, STORE, "claim_all"),
    Step("claim", 9, LOG, "bounds", 2),
    Step("claim", 10, LOG, "start", each=True),
    Step("commit", 1, "worker.counting.layout", "dump", each=True),
    Step("commit", 2, LOG, "topic_id"),
    Step("commit", 3, DEAD_LETTERS, "flush"),
    Step("commit", 4, STORE, "stage_all"),
    Step("commit", 5, STORE, "promote_all"),
    Step("commit", 6, LOG, "mirror"),
    Step("publish", 1, STORE, "peek", 1, 1),
    Step("publish", 2, SNAPSHOT_PRODUCER, "open"),
    Step("publish", 3, STORE, "cut_all"),
    Step("publish", 4, PLAN, "is_new"),
    Step("publish", 5, "ldp.snapshot", "take", each=True),
    Step("publish", 5, "ldp.snapshot", "announce"),
    Step("publish", 5, "ldp.snapshot", "encode_window", each=True),
    Step("publish", 5, "ldp.snapshot", "delete_window", each=True),
    Step("publish", 6, STORE, "peek", 2),
    Step("publish", 7, PRODUCER, "send", each=True),
    Step("publish", 8, PRODUCER, "flush"),
    Step("publish", 9, PRODUCER, "commit_transaction"),
    Step("publish", 10, EVENTS, "published"),
    Step("heed", 1, SNAPSHOT_PRODUCER, "head"),
    Step("heed", 2, WINDOWS, "admit", each=True),
    Step("heed", 3, STATE, "evict", each=True),
    Step("heed", 4, LOG, "start", each=True),
]

IMPORTING = [
    Step("import", 1, IMPORT, "_prefixes"),
    Step("import", 2, NON_MEMBER, "topic_id"),
    Step("import", 3, NON_MEMBER, "committed"),
    Step("import", 4, SNAPSHOT_PRODUCER, "head"),
    Step("import", 5, NON_MEMBER, "bounds"),
    Step("import", 6, STORE, "peek", each=True),
    Step("import", 7, STORE, "stage", each=True),
    Step("import", 8, STORE, "install", each=True),
    Step("import", 9, NON_MEMBER, "mirror", each=True),
]
"""Steps of an import, which runs outside a worker."""

INTAKE = "worker.kafka.intake.partition:KafkaIntake"
SHUFFLING = [
    Step("intake", 1, "worker.kafka.intake.group:IntakeGroup", "assigned"),
    Step("intake", 2, INTAKE, "fence"),
    Step("intake", 3, INTAKE, "committed"),
    Step("intake", 4, INTAKE, "bounds"),
    Step("intake", 5, INTAKE, "offset_since"),
    Step("batch", 1, INTAKE, "poll", each=True),
    Step("batch", 2, "worker.shuffling.partition", "permute"),
    Step("batch", 3, "worker.shuffling.partition", "split"),
    Step("batch", 4, PRODUCER, "begin_transaction"),
    Step("batch", 5, PRODUCER, "send", each=True),
    Step("batch", 6, "worker.kafka.client.quirks", "await_acknowledgements"),
    Step("batch", 7, "worker.kafka.client.quirks", "send_offsets"),
    Step("batch", 8, PRODUCER, "commit_transaction"),
    Step("batch", 9, INTAKE, "delete"),
]
"""Steps of a shuffler, which is another process."""

APPLICATION, SENDER = "worker.gateway.application:Application", "worker.kafka.intake.sender:IntakeSender"
UPLOADING = [
    Step("upload", 1, APPLICATION, "_forward"),
    Step("upload", 2, APPLICATION, "_body"),
    Step("upload", 4, APPLICATION, "_framed"),
    Step("upload", 5, SENDER, "send"),
    Step("upload", 6, APPLICATION, "_acknowledge"),
    Step("upload", 7, SENDER, "replace"),
]
"""Steps of a gateway. Uploads are concurrent, so each step is a turn. Step 3 is for encrypted uploads."""

ALONE, FINAL, DELETED = "a head alone", "a final window", "a deleted window"
"""Parts of a publishing turn, in addition to the snapshot of all time."""


def content(call: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """Returns the published windows of a call, or an empty text."""
    if call == "announce":
        return ALONE
    # with methods, it is called for formerly published methods, mostly none
    gone = call == "delete_window" and len(args) == 2
    if gone or (call == "send" and named.get("value", b"") is None):
        return DELETED
    final = call == "encode_window" and args[0].window.final
    return FINAL if final or (call == "send" and ("final", b"true") in named.get("headers", ())) else ""


def found(turn: str, owner: str, call: str, nth: int) -> Step | None:
    """Returns which step the nth call of a name in a turn is."""
    for step in [*STEPS, *IMPORTING, *SHUFFLING, *UPLOADING]:
        if (step.turn, step.owner, step.call) == (turn, owner, call) and step.first <= nth <= step.last:
            return step
    return None
