"""Parsing: a record's value in, its reports as the wire's bytes out, or the reason why the whole record is rejected."""

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
    """By what records are judged beside their form; stored with the offset from which it holds.

    Attributes:
        most: how many reports a record may have, or None for any number.
        ones: whether the number of ones in a unary report is judged.
        batch: how many bytes a record batch may have after decompression, or None for any number.
        windows: the windows that they count in, or None for all time alone.
    """

    most: int | None = None
    ones: bool = True
    batch: int | None = None
    windows: Windows | None = None


class Malformed(Exception):  # noqa: N818  # an outcome of parsing, not an error of the audit
    """A record is rejected as a whole, for a reason."""

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
    """Returns a record's reports as the wire's bytes, or says why the whole record is rejected.

    Args:
        value: the record's value.
        fingerprint: the stream's.
        protocol: the stream's.
        limits: by what the record is judged beside its form.

    Raises:
        Malformed: it is rejected.
    """
    if not value:
        raise Malformed("empty")
    if value[:1] == b"{":
        body = _json_body(value, fingerprint, protocol, limits)
    elif value[0] != 1:
        raise Malformed("version")
    # a frame too short for its fingerprint is truncated; a whole one that differs is of another stream
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
    if limits.ones and not protocol.likely(body):
        raise Malformed("ones")
    return body


def _json_body(value: bytes, fingerprint: bytes, protocol: Protocol, limits: Limits) -> bytes:
    """Returns the reports of a JSON record as the wire's bytes; another stream's are not looked into."""
    try:
        tree = _JSON.decode(value.decode("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise Malformed("json") from None
    # objects come as tuples of pairs, so that a repeated key is seen and a nested object is nothing allowed
    if sorted(key for key, _ in tree) != ["fingerprint", "reports"]:
        raise Malformed("json")
    said, listed = dict(tree)["fingerprint"], dict(tree)["reports"]
    if type(said) is not str or len(said) != 8 or not set(said) <= set("0123456789abcdef"):
        raise Malformed("json")
    # some protocol's reports, whoever they are for: numbers, texts, lists of numbers
    if type(listed) is not list or any(
        {type(number) for number in item} - {int} if type(item) is list else type(item) not in (int, str)
        for item in listed
    ):
        raise Malformed("json")
    if said != fingerprint.hex():
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
    """Returns the bytes that a text of base64 stands for."""
    if type(item) is not str or not _BASE64.fullmatch(item) or len(body := b64decode(item)) != size:
        raise Malformed("json")
    return body


_BASE64 = re.compile(
    # four characters are three bytes; the last bytes have padding, and no bit set that is no byte's
    "(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?"
)


def _integer(text: str) -> int:
    # Python refuses very long integers, how long is a setting; to a report they are just out of range
    return int(text) if len(text) < 30 else -1


def _no_integer(_: str) -> None:
    """What a float or a NaN becomes: JSON to read, but no part of a report."""


_JSON = json.JSONDecoder(
    object_pairs_hook=tuple, parse_float=_no_integer, parse_constant=_no_integer, parse_int=_integer
)
