"""Documents as they are stored with the counts.

A sealed document is the canonical JSON of `ldp.Stream.hashed`, in which the SHA-256 of the labels replaces the labels.
Its own SHA-256 begins with the fingerprint. Counting needs no labels, so a worker can count each recorded document,
also one that its configuration does not name.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import ldp
from ldp.oracles import Oracle
from ldp.privacy.declaration import Declaration
from ldp.stream import canonical


@dataclass(frozen=True)
class Document:
    """A document without labels.

    Attributes:
        sealed: the canonical JSON.
        fingerprint: the first four bytes of the SHA-256 of `sealed`.
        oracle: the protocol with its parameters.
    """

    sealed: str
    fingerprint: bytes
    oracle: Oracle = field(compare=False)

    @functools.cached_property
    def parsed(self) -> dict[str, Any]:
        """The document as a JSON object, with the SHA-256 of the labels."""
        parsed: dict[str, Any] = json.loads(self.sealed)
        return parsed

    @functools.cached_property
    def segment(self) -> str | None:
        """The names of the levels of a report's segment, or None."""
        return self.parsed.get("segment")

    @functools.cached_property
    def memoised(self) -> bool:
        """Whether clients declare memoised noise."""
        return "privacy" in self.parsed and Declaration.from_document(self.parsed["privacy"]).memoised

    @classmethod
    def of(cls, stream: ldp.Stream) -> "Document":
        """Returns the document of a stream."""
        return cls(stream.hashed.decode(), stream.fingerprint, stream.oracle)


def of_fleet(fleet: ldp.Fleet) -> dict[str, Document]:
    """Returns the documents of a fleet by fingerprint."""
    return {each.fingerprint.hex(): Document.of(each) for each in fleet.documents}


def seal(document: Mapping[str, Any], fingerprint: str) -> str:
    """Returns the text of a sealed document.

    Raises TypeError or ValueError if it is not an object, or has another fingerprint.
    """
    if not isinstance(document, Mapping):
        raise TypeError(f"a document is an object, not {type(document).__name__}")
    text = canonical(document)
    if (found := hashlib.sha256(text).hexdigest()[:8]) != fingerprint:
        raise ValueError(f"a document with fingerprint {found} is recorded as {fingerprint}")
    return text.decode()


@functools.lru_cache  # few values, but each cut reads one per partition
def opened(sealed: str) -> Document:
    """Parses the text of `seal`; raises TypeError or ValueError.

    Example:
        >>> stream = ldp.Stream("colours", ldp.GRR("1", 2), ["red", "blue"])
        >>> opened(stream.hashed.decode()) == Document.of(stream)
        True
    """
    document = json.loads(sealed)
    document.pop("labels", None)
    oracle = ldp.Stream.from_document("sealed", document).oracle
    return Document(sealed, hashlib.sha256(sealed.encode()).digest()[:4], oracle)


def colliding(recorded: Mapping[str, str], fleet: ldp.Fleet) -> list[ldp.Stream]:
    """Returns the configured documents whose fingerprint another one has.

    Fingerprints have four bytes. `recorded`: fingerprint -> sealed document.
    """
    return [
        each
        for each in fleet.documents
        if recorded.get(each.fingerprint.hex(), sealed := each.hashed.decode()) != sealed
    ]


def unnamed(recorded: Mapping[str, str], fleet: ldp.Fleet) -> list[str]:
    """Returns why recorded documents belong to another stream, or nothing.

    Args:
        recorded: fingerprint -> sealed document; empty if nothing is recorded.
        fleet: the configured documents.

    Example:
        >>> fleet = ldp.Fleet((ldp.Stream("colours", ldp.GRR("1", domain_size=3)),))
        >>> unnamed({"8e9f39d0": fleet.documents[0].hashed.decode()}, fleet)
        []
        >>> unnamed({"9f86d081": "{}"}, fleet)
        ['the recorded documents are 9f86d081; the configuration names none of them']
        >>> unnamed({"8e9f39d0": "{}"}, fleet)
        ['another document with the fingerprint 8e9f39d0 is recorded']
    """
    if recorded and not any(each.fingerprint.hex() in recorded for each in fleet.documents):
        return [f"the recorded documents are {', '.join(recorded)}; the configuration names none of them"]
    return [
        f"another document with the fingerprint {each.fingerprint.hex()} is recorded"
        for each in colliding(recorded, fleet)
    ]
