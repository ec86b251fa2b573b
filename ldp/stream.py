"""Streams, and the public documents that configure clients."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ldp import oracles
from ldp.arguments import as_text
from ldp.oracles import Oracle
from ldp.oracles.described import INFINITE
from ldp.oracles.explicit import ExplicitChannel
from ldp.privacy.declaration import Declaration
from ldp.segments import as_segment

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
DOCUMENT_VERSION = 1
"""Version of the public document and the fingerprint. Only documents of later versions have the key ``version``."""


_LISTED = 20  # Most faults in one message
_ONE_VALUE = (
    "the domain has one value, which every client of ldp reports; ask a yes/no question with two values, such as the"
    " labels no,yes. One value is only for bits that other clients randomized, with unary"
)


@dataclass(frozen=True)
class Stream:
    """One kind of report: a name, an oracle, and labels.

    Attributes:
        name: 1 to 200 characters of A–Z a–z 0–9 . _ -
        oracle: the protocol with its parameters.
        labels: the name of each value, in the domain's order, or None.
        privacy: the declaration of the reports of a unit, or None.
        segment: the names of the levels of the segment that each report carries, such as "country:app"; None if
            reports carry no segment.

    Raises:
        TypeError: an oracle, label, declaration or segment of the wrong type.
        ValueError: a name, label or segment that is not allowed.

    Example:
        >>> import ldp
        >>> stream = Stream("colours", ldp.GRR("1", domain_size=2), labels=["red", "blue"])
        >>> stream.document()
        {'protocol': 'grr', 'epsilon': '1/1', 'domain_size': 2, 'labels': ['red', 'blue']}
    """

    name: str
    oracle: Oracle
    labels: tuple[str, ...] | None = field(default=None, repr=False)
    privacy: Declaration | None = None
    segment: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"the stream's name is {self.name!r}; allowed are 1 to 200 of A-Z a-z 0-9 . _ -")
        if not isinstance(self.oracle, Oracle):
            raise TypeError(f"stream {self.name}: oracle must be an Oracle, not {type(self.oracle).__name__}")
        if not isinstance(self.privacy, Declaration | None):
            raise TypeError(
                f"stream {self.name}: privacy must be a Declaration, not {type(self.privacy).__name__}"
            )
        if self.segment is not None:
            as_segment(f"stream {self.name}: segment", self.segment)
        object.__setattr__(self, "labels", _labels(self.name, self.labels, self.oracle.domain_size))

    def document(self) -> dict[str, Any]:
        """Returns the public document, which configures clients."""
        document = self.oracle.parameters()
        if self.labels is not None:
            document["labels"] = list(self.labels)
        if self.privacy is not None:
            document["privacy"] = self.privacy.document()
        if self.segment is not None:
            document["segment"] = self.segment
        return document

    @cached_property
    def hashed(self) -> bytes:
        """The canonical JSON of the document, the input of the fingerprint.

        Canonical JSON is UTF-8 with sorted keys and without spaces. The hexadecimal SHA-256 of the labels' canonical
        JSON replaces the labels. The stream's name is not included.
        """
        return _hashed(self.document())

    @cached_property
    def fingerprint(self) -> bytes:
        """The first four bytes of the SHA-256 of `hashed`."""
        return hashlib.sha256(self.hashed).digest()[:4]

    @property
    def warnings(self) -> list[str]:
        """Probable mistakes, as sentences: one value, or labels that look alike.

        O(d).

        Example:
            >>> import ldp
            >>> Stream("s", ldp.GRR("1", 2), labels=["red", "red "]).warnings
            ["labels differ only by Unicode form or spaces at an end: 0 'red' and 1 'red '"]
        """
        alone = self.oracle.domain_size == 1
        return ([_ONE_VALUE] if alone else []) + _alike(self.labels or ())

    def where(self, *predicates: str | Callable[[str], object]) -> tuple[int, ...]:
        """Returns the values whose labels satisfy at least one predicate.

        Args:
            predicates: patterns, or functions of a label. A pattern matches the complete label and is case-sensitive:
                ``*`` matches any characters, ``?`` one character, ``[abc]`` and ``[a-c]`` one of the listed
                characters, ``[!abc]`` one character that is not listed.

        Returns:
            Indices in ascending order, for `ldp.answer` and queries. O(d) per predicate.

        Raises:
            TypeError: a predicate that is neither a pattern nor a function.
            ValueError: a stream without labels, no predicate, or a predicate that no label satisfies.

        Example:
            >>> import ldp
            >>> stream = Stream("s", ldp.GRR("1", 4), labels=["heart suit", "two hearts", "heart", "club suit"])
            >>> stream.where("heart*", "*suit"), stream.where(lambda label: " " not in label)
            ((0, 2, 3), (2,))
        """
        return where(self.name, self.labels, *predicates)

    @classmethod
    def from_document(cls, name: str, document: Mapping[str, Any]) -> Stream:
        """Returns the stream that a document describes.

        Raises:
            TypeError: a part of the document that has the wrong type.
            ValueError: a document of a newer version, a key that is missing or unknown, or a value that is not allowed.
        """
        if not isinstance(document, Mapping):
            raise TypeError(
                f"stream {name}: the document must be a JSON object, not {type(document).__name__}"
            )
        if "version" in document:
            raise ValueError(
                f"stream {name}: the document has version {document['version']!r}, which is newer; supported is "
                f"version {DOCUMENT_VERSION}, which has no key 'version'"
            )
        try:
            protocol = oracles.protocol(document.get("protocol"), document.keys())
        except ValueError as error:
            raise ValueError(f"stream {name}: {error}") from None
        keys = {"protocol", "domain_size", *protocol.exact, *protocol.own_parameters}
        optional = (
            {"epsilon"}
            if issubclass(protocol, ExplicitChannel) and document.get("epsilon") == INFINITE
            else set()
        )
        if keys != document.keys() - {"labels", "privacy", "segment"} - optional:
            raise ValueError(
                f"stream {name}: the document has the keys {sorted(map(str, document))}; "
                f"{protocol.name} needs exactly {sorted(keys)}, and optionally 'labels', 'privacy' and 'segment'"
            )
        for key in protocol.exact:
            if not isinstance(document[key], str):
                raise TypeError(f"stream {name}: {key} is {document[key]!r}; it must be a string 'num/den'")
        labels = document.get("labels", [])
        if not isinstance(labels, list):
            raise TypeError(f"stream {name}: labels must be a list, not {type(labels).__name__}")
        values = {key: document[key] for key in (keys | optional) - {"protocol"}}
        if any(value is None for value in values.values()):
            raise TypeError(
                f"stream {name}: {[key for key in sorted(values) if values[key] is None]} must not be null"
            )
        oracle = protocol(**values)
        written = oracle.parameters()
        for key in protocol.exact:
            if written[key] != document[key]:
                raise ValueError(
                    f"stream {name}: {key} is {document[key]!r}; in lowest terms it is {written[key]!r}"
                )
        try:
            declared = Declaration.from_document(document["privacy"]) if "privacy" in document else None
        except (TypeError, ValueError) as error:
            raise type(error)(f"stream {name}: {error}") from None
        segment = (
            as_segment(f"stream {name}: segment", document["segment"]) if "segment" in document else None
        )
        return cls(name, oracle, tuple(labels) if "labels" in document else None, declared, segment)


def fingerprint(document: Mapping[str, Any]) -> bytes:
    """Returns the fingerprint of a document; see `Stream.fingerprint`."""
    return hashlib.sha256(_hashed(document)).digest()[:4]


def _hashed(document: Mapping[str, Any]) -> bytes:
    if "labels" in document:
        labels = hashlib.sha256(canonical(document["labels"])).hexdigest()
        document = {**document, "labels": labels}
    return canonical(document)


def canonical(document: object) -> bytes:
    """Returns the canonical JSON that docs/reference/wire-format.md defines."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _labels(stream: str, labels: object, domain_size: int) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if not isinstance(labels, list | tuple):
        raise TypeError(
            f"stream {stream}: labels must be a list or tuple of strings, not {type(labels).__name__}"
        )
    if len(labels) != domain_size:
        raise ValueError(f"stream {stream}: there are {len(labels)} labels for {domain_size} values")
    for index, label in enumerate(labels):
        as_text(f"stream {stream}: label {index}", label)
    if twins := [f"labels {i} and {j} are both {labels[j]!r}" for i, j in _twins(labels)]:
        raise ValueError(f"stream {stream}: {_few(twins)}")
    return tuple(labels)


def _twins(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yields each index with the first index of the same name."""
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        if (place := first.setdefault(name, index)) != index:
            yield place, index


def _alike(labels: Sequence[str]) -> list[str]:
    """Returns a sentence that names the labels that look like earlier ones."""
    looks = [unicodedata.normalize("NFKC", label).strip() for label in labels]
    pairs = [f"{i} {labels[i]!a} and {j} {labels[j]!a}" for i, j in _twins(looks)]
    return [f"labels differ only by Unicode form or spaces at an end: {_few(pairs)}"] if pairs else []


def _few(faults: list[str]) -> str:
    """Joins faults, at most 20 of them."""
    more = [f"{len(faults) - _LISTED:,} more"] if len(faults) > _LISTED else []
    return "; ".join(faults[:_LISTED] + more)


def where(
    name: str, labels: tuple[str, ...] | None, *predicates: str | Callable[[str], object]
) -> tuple[int, ...]:
    """Returns the indices of matching labels; see `Stream.where`."""
    if labels is None:
        raise ValueError(f"stream {name} has no labels; predicates need labels")
    if not predicates:
        raise ValueError("no predicate given; at least one is needed")
    found: set[int] = set()
    for predicate in predicates:
        found.update(_satisfying(labels, predicate))
    return tuple(sorted(found))


def _satisfying(labels: tuple[str, ...], predicate: object) -> list[int]:
    if isinstance(predicate, str):
        found = [index for index, label in enumerate(labels) if fnmatchcase(label, predicate)]
    elif callable(predicate):
        found = [index for index, label in enumerate(labels) if predicate(label)]
    else:
        raise TypeError(f"a predicate is {predicate!r}; allowed are a pattern or a function of a label")
    if not found:
        raise ValueError(f"no label satisfies {predicate!r}")
    return found
