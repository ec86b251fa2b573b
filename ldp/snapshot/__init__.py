"""The snapshot: what a stream's counts say at one cut."""

from ldp.snapshot.encoding import (
    CHUNK,
    FLOAT64,
    INLINE,
    JSON,
    SCHEMA,
    Cut,
    Incomplete,
    Message,
    Received,
    Recommended,
    Snapshot,
    assemble,
    messages,
)

__all__ = [
    "CHUNK",
    "FLOAT64",
    "INLINE",
    "JSON",
    "SCHEMA",
    "Cut",
    "Incomplete",
    "Message",
    "Received",
    "Recommended",
    "Snapshot",
    "assemble",
    "messages",
]
