"""Parsing of a record's value into reports or a reason for rejection.

The fingerprint in a frame selects the document. A frame of a document with segments names the report's segment: levels
joined by ``:``. A declared segment has its own cell. Others count in the rest of their longest declared prefix:
``US:9.9`` in ``US:~``, and ``XX`` in ``~``.
"""

import hashlib
import json
import re
import struct
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from worker.audit.protocols import Protocol, protocol_of
from worker.audit.windows import Windows

Documents = Mapping[str, Mapping[str, Any]]
"""Documents by fingerprint, in hexadecimal. A recorded document has a hash in the place of its labels."""
Status = tuple[int, bool]
"""(version, whether retired) of a document or a segment; the highest of all rules applies."""
Key = tuple[str, str]
"""(fingerprint of the document, name of the segment's cell or "") of counts."""


@dataclass(frozen=True)
class Limits:
    """Limits, windows and names of a rule."""

    most: int | None = None  # maximum reports in a record
    hamming_weight: bool = True  # whether unlikely Hamming weights of unary reports are rejected
    batch: int | None = None  # maximum bytes of a decompressed record batch
    windows: Windows | None = None
    fewest_new: int = 0  # smallest number of new reports by which published counts change
    documents: Mapping[str, Status] = field(default_factory=dict)  # by this rule and all before
    segments: Mapping[str, Status] = field(default_factory=dict)  # likewise


class Malformed(Exception):  # noqa: N818  # an outcome, not an error
    """A record is rejected with all its reports."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def fingerprint_of(document: Mapping[str, Any]) -> bytes:
    """Returns the first four bytes of the canonical document's SHA-256 hash.

    Example:
        >>> fingerprint_of({"protocol": "grr", "epsilon": "1/1", "domain_size": 3}).hex()
        '8e9f39d0'
    """
    plain = dict(document)
    if plain.get("labels") is not None:
        plain["labels"] = hashlib.sha256(_canonical(plain["labels"])).hexdigest()
    return hashlib.sha256(_canonical(plain)).digest()[:4]


def _canonical(tree: object) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def by_fingerprint(*documents: Mapping[str, Any]) -> Documents:
    """Returns documents by their fingerprints, in hexadecimal."""
    return {fingerprint_of(document).hex(): document for document in documents}


class Accepting:
    """Documents, segments and limits of a rule.

    `documents` are those that the rules name so far.
    """

    def __init__(self, documents: Documents, limits: Limits) -> None:
        self.limits = limits
        self.protocols = {name: protocol_of(document) for name, document in documents.items()}
        self._segmented = {name for name, document in documents.items() if "segment" in document}
        self._retired = {name for name, (_, retired) in limits.documents.items() if retired}
        self._declared = {name for name, (_, retired) in limits.segments.items() if not retired}
        above = (name.split(":")[:-1] for name in limits.segments)
        self._prefixes = self._declared | {":".join(on[: n + 1]) for on in above for n in range(len(on))}

    def key_of(self, mark: str, segment: str | None) -> Key:
        """Returns the key of a record's counts; raises `Malformed`.

        `segment` is None for a frame without one.

        Example:
            >>> limits = Limits(segments={"DE": (0, False), "US:4.3": (0, False), "FR:1": (0, True)})
            >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3, "segment": "country:app"}
            >>> accepting = Accepting({"9f86d081": document}, limits)
            >>> texts = ["DE", "DE:1", "US", "US:4.3", "US:9.9", "FR:1", "XX"]
            >>> [accepting.key_of("9f86d081", text)[1] for text in texts]
            ['DE', 'DE:~', 'US:~', 'US:4.3', 'US:~', 'FR:~', '~']
        """
        if mark not in self.protocols:
            raise Malformed("fingerprint")
        if mark in self._retired:
            raise Malformed("retired")
        if (segment is None) == (mark in self._segmented):
            raise Malformed("segment")
        if segment is None:
            return mark, ""
        if len(segment) > 64 or not _SEGMENT.fullmatch(segment):
            raise Malformed("segment")
        if segment in self._declared:
            return mark, segment
        levels = segment.split(":")
        prefixes = (":".join(levels[:n]) for n in range(len(levels), 0, -1))
        return mark, next((f"{each}:~" for each in prefixes if each in self._prefixes), "~")

    def parse(self, value: bytes | None) -> tuple[Key, bytes]:
        """Returns a record's key and reports in binary format; raises `Malformed`."""
        if not value:
            raise Malformed("empty")
        if value[:1] == b"{":
            key, body = self._of_json(value)
        elif value[0] not in (1, 2):
            raise Malformed("version")
        elif len(value) < 5:
            raise Malformed("length")
        else:
            key, body = self._of_frame(value)
        if (fault := self.fault_of(self.protocols[key[0]], body)) is not None:
            raise Malformed(fault)
        return key, body

    def fault_of(self, protocol: Protocol, body: bytes) -> str | None:
        """Returns why a report of one or several records is rejected, or None."""
        if not protocol.allowed(body):
            return "range"
        return "ones" if self.limits.hamming_weight and not protocol.likely(body) else None

    def _of_frame(self, value: bytes) -> tuple[Key, bytes]:
        text, body = None, value[5:]
        if value[0] == 2:
            end = 1 + body[0] if body else 1
            # malformed if the segment is shorter than its length
            text, body = body[1:end].decode("latin-1") if len(body) >= end else "", body[end:]
        key = self.key_of(value[1:5].hex(), text)
        size, most = self.protocols[key[0]].columns.itemsize, self.limits.most
        if not body or len(body) % size:
            raise Malformed("length")
        if most is not None and len(body) > most * size:
            raise Malformed("many")
        return key, body

    def _of_json(self, value: bytes) -> tuple[Key, bytes]:
        try:
            tree = _JSON.decode(value.decode("utf-8"))
        except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
            raise Malformed("json") from None
        # objects are tuples of pairs, which keeps repeated keys
        if sorted(key for key, _ in tree if key != "segment") != ["fingerprint", "reports"] or len(tree) > 3:
            raise Malformed("json")
        mark, listed, segment = (dict(tree).get(key) for key in ("fingerprint", "reports", "segment"))
        if type(mark) is not str or len(mark) != 8 or not set(mark) <= set("0123456789abcdef"):
            raise Malformed("json")
        # a report of any protocol is a number, a string or a list of numbers
        if type(listed) is not list or any(
            {type(number) for number in item} - {int} if type(item) is list else type(item) not in (int, str)
            for item in listed
        ):
            raise Malformed("json")
        if len(tree) == 3 and type(segment) is not str:
            raise Malformed("json")
        key = self.key_of(mark, segment)
        if not listed:
            raise Malformed("length")
        if self.limits.most is not None and len(listed) > self.limits.most:
            raise Malformed("many")
        return key, _from_json(listed, self.protocols[key[0]])


def _from_json(listed: Iterable[Any], protocol: Protocol) -> bytes:
    if protocol.numbers is None:
        return b"".join(_from_base64(item, protocol.columns.itemsize) for item in listed)
    size = len(protocol.columns.names or ())
    reports = [[item] if size == 1 else item for item in listed]
    for report in reports:
        if type(report) is not list or [type(number) for number in report] != [int] * size:
            raise Malformed("json")
    try:
        return b"".join(protocol.numbers.pack(*report) for report in reports)
    except struct.error:  # the number exceeds its column
        raise Malformed("range") from None


def _from_base64(item: object, size: int) -> bytes:
    if type(item) is not str or not _BASE64.fullmatch(item) or len(body := b64decode(item)) != size:
        raise Malformed("json")
    return body


_SEGMENT = re.compile("[A-Za-z0-9._-]{1,32}(:[A-Za-z0-9._-]{1,32})*", re.ASCII)
_BASE64 = re.compile(
    # groups of four characters; the last group has padding, and its unused bits are 0
    "(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
)


def _integer(text: str) -> int:
    # Python rejects very long integers; in a report they are out of range
    return int(text) if len(text) < 30 else -1


_JSON = json.JSONDecoder(  # floats and NaN become None, which no report contains
    object_pairs_hook=tuple, parse_float=lambda _: None, parse_constant=lambda _: None, parse_int=_integer
)
