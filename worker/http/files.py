"""Static files of the page."""

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from worker.http.answers import Packed

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class File:
    """A compressed file with its content type and ETag."""

    content: Packed
    content_type: str
    tag: str


@cache
def pages() -> dict[str, File]:
    """Returns the static files by name; caches the result.

    Example:
        >>> all(name.rpartition(".")[2] in TYPES for name in pages())
        True
    """
    found = {}
    for entry in (files("worker") / "page").iterdir():
        if (content_type := TYPES.get(entry.name.rpartition(".")[2])) is not None:
            content = entry.read_bytes()
            found[entry.name] = File(
                Packed.of(content), content_type, hashlib.sha256(content).hexdigest()[:32]
            )
    return found
