"""The snapshot of a stream at one cut, as an object and as messages.

`take` computes a snapshot, `encode` converts it to messages, and `assemble` builds it from messages. The modules
`documents` and `chunks` define the formats of messages. `largest` bounds the size of a message.

The messages of a snapshot are a head, a domain (the labels) and one body per method: Base and the paper's ten methods
(Section IV, Table I). ``snapshot.schema.json`` is the schema of the messages. Changes within a schema version only add
fields, and a reader ignores unknown fields.

A vector of up to `INLINE` values is part of the JSON body. A longer vector is split into messages of up to `CHUNK`
values, with the keys ``<body's key>/<vector>/<i>``. In the body, ``chunks`` is then the number of messages per vector,
and ``vectors`` lists the names of the vectors. `rounding` makes long vectors shorter.

All messages of a snapshot have the same identity, in the header ``snapshot`` and in the documents. It distinguishes the
snapshot from another snapshot with the same number.
"""

from ldp.snapshot.assembling import (
    Incomplete,
    NewerSchema,
    Received,
    assemble,
    assemble_window,
    window_of,
    windows,
)
from ldp.snapshot.checking import MOST_RANK
from ldp.snapshot.chunks import FLOAT32, FLOAT64, SPARSE32, SPARSE64
from ldp.snapshot.contents import (
    ALL_TIME,
    LATE,
    Body,
    Closed,
    Cut,
    Period,
    PrivacyLoss,
    Recommended,
    Released,
    Rows,
    SetAnswer,
    Slots,
    Snapshot,
    TopAnswer,
)
from ldp.snapshot.documents import (
    CHUNK,
    INLINE,
    SCHEMA,
    body_document,
    head_document,
    progress,
    released_of,
    rows_of,
)
from ldp.snapshot.encoding import JSON, Message, delete_part, delete_window, encode, encode_window
from ldp.snapshot.largest import largest_message
from ldp.snapshot.parts import domain_of, part_of, whole_of
from ldp.snapshot.rounding import rounded
from ldp.snapshot.rows import Row, RowKey, RowValue, delete_rows, encode_rows, slots
from ldp.snapshot.taking import announce, part_identity, take, window_identity

__all__ = [
    "ALL_TIME",
    "CHUNK",
    "FLOAT32",
    "FLOAT64",
    "INLINE",
    "JSON",
    "LATE",
    "MOST_RANK",
    "SCHEMA",
    "SPARSE32",
    "SPARSE64",
    "Body",
    "Closed",
    "Cut",
    "Incomplete",
    "Message",
    "NewerSchema",
    "Period",
    "PrivacyLoss",
    "Received",
    "Recommended",
    "Released",
    "Row",
    "RowKey",
    "RowValue",
    "Rows",
    "SetAnswer",
    "Slots",
    "Snapshot",
    "TopAnswer",
    "announce",
    "assemble",
    "assemble_window",
    "body_document",
    "delete_part",
    "delete_rows",
    "delete_window",
    "domain_of",
    "encode",
    "encode_rows",
    "encode_window",
    "head_document",
    "largest_message",
    "part_identity",
    "part_of",
    "progress",
    "released_of",
    "rounded",
    "rows_of",
    "slots",
    "take",
    "whole_of",
    "window_identity",
    "window_of",
    "windows",
]
