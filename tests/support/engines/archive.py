"""Archive as these jobs read it: a folder with document.json and records.jsonl, one record per line.

A record has topic, partition, offset, timestamp in milliseconds, and value, in base64 or null. A job writes its
counts next to it, one file per partition of the log: ``<engine>-<topic>-<partition>.ldp``.
"""

import json
import sys
from pathlib import Path

import ldp
from ldp.state import State

FOLDERS = [Path(name) for name in sys.argv[1:]]


def stream(folder: Path) -> ldp.Stream:
    """Returns the stream of an archive."""
    document = json.loads((folder / "document.json").read_text(encoding="utf-8"))
    return ldp.Stream.from_document("archive", document)


def write(state: State, folder: Path, engine: str) -> None:
    """Writes the state of one partition."""
    (covered,) = state.log
    state.write(folder / f"{engine}-{covered.topic}-{covered.partition}.ldp")
