"""Parsing of a record's value into reports or a reason for rejection."""

import hashlib
import json
import re
import struct
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from worker.audit.protocols import Protocol
from worker.audit.windows import Windows


@dataclass(frozen=True)
class Limits:
    """Limits and windows of a rule."""

    most: int | None = None  # maximum reports in a record
    hamming_weight: bool = True  # whether unlikely Hamming weights of unary reports are rejected
    batch: int | None = None  # maximum bytes of a decompressed record batch
    windows: Windows | None = None
    fewest_new: int = 0  # smallest number of new reports by which published counts change


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


def body_of(value: bytes | None, fingerprint: bytes, protocol: Protocol, limits: Limits) -> bytes:
    """Returns a record's reports in binary format; raises `Malformed`."""
    if not value:
        raise Malformed("empty")
    if value[:1] == b"{":
        body = _json_body(value, fingerprint, protocol, limits)
    elif value[0] != 1:
        raise Malformed("version")
    elif len(value) < 5:
        raise Malformed("length")
    elif value[1:5] != fingerprint:
        raise Malformed("fingerprint")
    else:
        body = value[5:]
        if not body or len(body) % protocol.columns.itemsize:
            raise Malformed("length")
        if limits.most is not None and len(body) > limits.most * protocol.columns.itemsize:
            raise Malformed("many")
    if not protocol.allowed(body):
        raise Malformed("range")
    if not protocol.declared(body):
        raise Malformed("rate")
    if limits.hamming_weight and not protocol.likely(body):
        raise Malformed("ones")
    return body


def _json_body(value: bytes, fingerprint: bytes, protocol: Protocol, limits: Limits) -> bytes:
    try:
        tree = _JSON.decode(value.decode("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise Malformed("json") from None
    # objects are tuples of pairs, which keeps repeated keys
    if sorted(key for key, _ in tree) != ["fingerprint", "reports"]:
        raise Malformed("json")
    mark, listed = dict(tree)["fingerprint"], dict(tree)["reports"]
    if type(mark) is not str or len(mark) != 8 or not set(mark) <= set("0123456789abcdef"):
        raise Malformed("json")
    # a report of any protocol is a number, a string or a list of numbers
    if type(listed) is not list or any(
        {type(number) for number in item} - {int} if type(item) is list else type(item) not in (int, str)
        for item in listed
    ):
        raise Malformed("json")
    if mark != fingerprint.hex():
        raise Malformed("fingerprint")
    if not listed:
        raise Malformed("length")
    if limits.most is not None and len(listed) > limits.most:
        raise Malformed("many")
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
