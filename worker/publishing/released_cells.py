"""Messages with the released counts of each document's segment.

A publisher that takes over continues from them. Each message is sent in the transaction of a snapshot, only when the
counts have changed. The numbers of reports of a document's segments add up to those in the head, so a missing message
is noticed.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np
import orjson

from ldp.snapshot import CHUNK, JSON, Incomplete, Message, Received, chunks, part_identity
from ldp.snapshot.assembling import read_vector
from worker.counting.cells import Segment
from worker.publishing.release import Counts, Rest, Shown

Key = tuple[str, Segment]
"""The fingerprint of a document, and a segment's cell."""
_NAME = "/released"


def encode(stream: str, key: Key, shown: Shown, identity: str) -> list[Message]:
    """Returns the messages of a segment; tombstones if it has no counts."""
    name = f"{stream}@{':'.join(key)}{_NAME}"
    many = -(-len(shown.counts.vector) // CHUNK)
    about = {"schema": 1, "reports": {"all": shown.counts.n, "late": shown.late.n}, "chunks": many}
    rest = asdict(shown.rest) | {"offsets": {str(p): at for p, at in sorted(shown.rest.offsets.items())}}
    messages = [Message(name, JSON, orjson.dumps(about | {"rest": rest}))]
    for what, counts in (("all", shown.counts), ("late", shown.late)):
        for i in range(many):
            part = counts.vector[i * CHUNK : (i + 1) * CHUNK].astype(np.float64)
            messages.append(Message(f"{name}/{what}/{i}", *chunks.shortest(part)))
    if not shown.counts.n:
        messages = [Message(each.key, JSON, b"") for each in messages]
    own = part_identity(identity, name)
    return [replace(each, snapshot=own, parts=len(messages)) for each in messages]


def assemble(stream: str, reports: Mapping[str, int], received: Received) -> dict[Key, Shown]:
    """Returns the counts of the newest messages.

    ``reports`` are the numbers of released reports by document in the head.

    Raises:
        Incomplete: messages are missing.
        ValueError, LookupError, TypeError: a message is invalid.
    """
    found, total = dict[Key, Shown](), Counter[str]()
    for name, (headers, value) in received.items():
        if not value or not name.endswith(_NAME):
            continue
        document, _, segment = name.removeprefix(f"{stream}@").removesuffix(_NAME).partition(":")
        about, mark = orjson.loads(value), (headers.get("sequence"), headers.get("snapshot"))
        numbers = {
            what: read_vector(received, f"{name}/{what}", None, about["chunks"], mark).astype(np.int64)
            for what in ("all", "late")
        }
        offsets = {int(p): offset for p, offset in about["rest"]["offsets"].items()}
        rest = Rest(about["rest"]["closed"], offsets, about["rest"]["lost"])
        total[document] += about["reports"]["all"]
        all_time, in_none = (Counts(about["reports"][what], own) for what, own in numbers.items())
        found[document, segment] = Shown(all_time, in_none, rest)
    if total != Counter({document: n for document, n in reports.items() if n}):
        raise Incomplete(f"{dict(total)} reports by document received, {dict(reports)} are in the head")
    return found
