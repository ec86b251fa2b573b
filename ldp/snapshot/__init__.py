"""The snapshot of a stream at one cut, as an object and as messages.

`take` and `encode` write, `assemble` reads. `contents` is the object; `taking`, `encoding` and `assembling` are the
ways; `documents` and `chunks` are shared, `largest` bounds the length of a message.

As messages a snapshot is a head, a domain (the labels, once) and one body per method: Base and the paper's ten
(Section IV, Table I). They follow ``snapshot.schema.json``. Compatibility: within a schema version fields are only
added, and a reader ignores unknown fields; anything else is a new version.

Vectors of up to `INLINE` values are in the JSON body. Longer ones follow in messages of their own, keys
``<body's key>/<vector>/<i>``, each up to `CHUNK` values in the shortest of the types of `chunks`. The body's ``chunks``
is their number, ``vectors`` the vectors' names. `rounding` makes their numbers short.

All messages of a snapshot carry one identity, as the header ``snapshot`` and in the documents, so that messages of
another snapshot with the same number are not mixed in.
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
from ldp.snapshot.chunks import FLOAT32, FLOAT64, SPARSE32, SPARSE64
from ldp.snapshot.contents import (
    ALL_TIME,
    Body,
    Closed,
    Cut,
    Period,
    Recommended,
    Rows,
    SetAnswer,
    Slots,
    Snapshot,
    TopAnswer,
)
from ldp.snapshot.documents import CHUNK, INLINE, SCHEMA, body_document, head_document, progress, rows_of
from ldp.snapshot.encoding import JSON, Message, delete_window, encode, encode_window
from ldp.snapshot.largest import largest_message
from ldp.snapshot.rounding import rounded
from ldp.snapshot.rows import MOST_RANK, Row, RowKey, RowValue, delete_rows, encode_rows, slots
from ldp.snapshot.taking import announce, take, window_identity

__all__ = [
    "ALL_TIME",
    "CHUNK",
    "FLOAT32",
    "FLOAT64",
    "INLINE",
    "JSON",
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
    "Received",
    "Recommended",
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
    "delete_rows",
    "delete_window",
    "encode",
    "encode_rows",
    "encode_window",
    "head_document",
    "largest_message",
    "progress",
    "rounded",
    "rows_of",
    "slots",
    "take",
    "window_identity",
    "window_of",
    "windows",
]
