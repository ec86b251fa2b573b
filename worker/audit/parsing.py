"""Parsing of a record's value: its reports as the wire's bytes, or the reason for its rejection."""

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
    """Rule for records, stored with the offset from which it holds."""

    most: int | None = None  # reports of a record
    hamming_weight: bool = True  # whether unlikely numbers of ones in unary reports are rejected
    batch: int | None = None  # bytes of a decompressed record batch
    windows: Windows | None = None


class Malformed(Exception):  # noqa: N818  # an outcome of parsing
    """A record is rejected as a whole."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def fingerprint_of(document: Mapping[str, Any]) -> bytes:
    """Returns the first four bytes of SHA-256 over a stream's public document in canonical JSON.

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
    """Returns a record's reports as the wire's bytes. Raises `Malformed`: the record is rejected."""
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
    """Returns the reports of a JSON record; those of another stream are not parsed."""
    try:
        tree = _JSON.decode(value.decode("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise Malformed("json") from None
    # objects come as tuples of pairs, so that repeated keys and nested objects show
    if sorted(key for key, _ in tree) != ["fingerprint", "reports"]:
        raise Malformed("json")
    mark, listed = dict(tree)["fingerprint"], dict(tree)["reports"]
    if type(mark) is not str or len(mark) != 8 or not set(mark) <= set("0123456789abcdef"):
        raise Malformed("json")
    # reports of any protocol: numbers, texts, lists of numbers
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
    except struct.error:  # a number that its bytes cannot hold
        raise Malformed("range") from None


def _from_base64(item: object, size: int) -> bytes:
    if type(item) is not str or not _BASE64.fullmatch(item) or len(body := b64decode(item)) != size:
        raise Malformed("json")
    return body


_BASE64 = re.compile(
    # four characters are three bytes; the last bytes have padding, and no bit set that is no byte's
    "(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
)


def _integer(text: str) -> int:
    # Python refuses very long integers; in a report they are out of range
    return int(text) if len(text) < 30 else -1


_JSON = json.JSONDecoder(  # floats and NaN become None, which is no part of a report
    object_pairs_hook=tuple, parse_float=lambda _: None, parse_constant=lambda _: None, parse_int=_integer
)
