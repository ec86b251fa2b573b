"""Audit: is what Redis holds exactly what the log says?

An independent verifier: it reads the topic again up to the stored offsets, record by record, counts with its
own parser, its own hashes and numpy, and compares with the stored state bit for bit. What is stored is what was
counted before any decoding: of Hadamard Response and PGR the reports by their index. It shares no code with
what it audits: no frames, kernels, oracles, columns, layout or store are imported here, so a fault in one of
them cannot hide itself. What the formats are is therefore said twice in this project, here the second time.

Each partition is read from Redis in one script, so its counts and its offset belong together, and is recounted
to exactly that offset: the audit is right also while workers count on. A script that only reads is let in also
where Redis is full, a transaction is not.

Records that were counted and then deleted by the topic's retention cannot be counted again. Of such a partition
the audit counts what remains, and asks whether the rest can be counts of the deleted records: a loss may show in
that, but that there was none is not proved.
"""

import decimal
import hashlib
import json
import re
import struct
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import redis
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError, RetriableError
from redis.backoff import NoBackoff
from redis.retry import Retry
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from worker.config import Config, Served

Counts = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Record = tuple[int, bytes | None]
"""A record as the audit needs it: its timestamp in milliseconds, and its value."""
Stretch = tuple[int, int]
"""Offsets [from, to) of a log."""

_STALL_SECONDS = 60.0
_COORDINATOR_SECONDS = 10.0
_PENDING_BYTES = 1 << 20
_LANE = 1 << 15  # hashes computed at once: two such columns of 32 bits stay in a core's second-level cache


class AuditError(RuntimeError):
    """The audit could not be made; it says nothing about the counts."""


class _Difference(Exception):  # noqa: N818  # not an error of the audit, but what it looks for
    """Redis and the log disagree."""


@dataclass
class Recount:
    """What the records of one partition amount to.

    Attributes:
        accepted: records counted.
        rejected: malformed records by reason.
        watermark: the highest accepted timestamp in milliseconds, or None.
        reports: reports counted.
        state: (K,) int64: how many reports support each value, or, where a report is only an index, have each.
    """

    accepted: int
    rejected: Counter[str]
    watermark: int | None
    reports: int
    state: Counts


@dataclass(frozen=True)
class Rule:
    """By what records are judged beside their form.

    Attributes:
        most: how many reports a record may have, or None for any number.
        ones: whether the number of ones in a unary report is judged.
    """

    most: int | None = None
    ones: bool = True


@dataclass(frozen=True)
class Row:
    """The verdict on one partition.

    Attributes:
        partition: its number.
        start: the offset that counting began at, or None where nothing was counted yet.
        offset: the stored offset, up to which was recounted; 0 where nothing was counted yet.
        lag: offsets between the stored one, or else the log's start, and the log's last stable one.
        records: records read again.
        reports: reports counted again.
        rejected: malformed records among them, by reason.
        gaps: the stretches [from, to) that are recorded as lost, if nothing else differs.
        deleted: the stretches [from, to) that were counted and then deleted, if nothing else differs.
        difference: the first disagreement, else what cannot be recounted or is recorded as lost, or None.
    """

    partition: int
    start: int | None
    offset: int
    lag: int
    records: int = 0
    reports: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
    gaps: tuple[Stretch, ...] = ()
    deleted: tuple[Stretch, ...] = ()
    difference: str | None = None

    @property
    def counted(self) -> bool:
        """Whether anything was counted yet: an offset is stored."""
        return self.start is not None

    @property
    def malformed(self) -> int:
        """Malformed records among those read again."""
        return sum(self.rejected.values())

    @property
    def verdict(self) -> str:
        """The verdict in a word or two."""
        if self.difference is not None and not self.gaps and not self.deleted:
            return "different"
        if self.gaps:
            return "gap"
        if self.deleted:
            return "not recountable"
        return "equal" if self.counted else "none yet"


EXIT_CODES: Mapping[str, int] = {
    "different": 1,
    "gap": 1,
    "not recountable": 3,
    "equal": 0,
    "none yet": 0,
}
"""What each verdict makes a command exit with; of several verdicts, the first in this order is the stream's."""


@dataclass(frozen=True)
class Deleted:
    """What comes in the place of the records of a stretch that was deleted while it was read."""

    stretch: Stretch


@dataclass(frozen=True)
class Verdict:
    """What an audit of one stream found.

    Example:
        >>> good = Row(0, start=0, offset=9, lag=2, records=9, reports=18)
        >>> Verdict("colours", (good,)).equal
        True
        >>> Verdict("colours", (good, Row(1, 0, 5, 0, difference="late: 3 in Redis, 0 recounted"))).difference
        'partition 1: late: 3 in Redis, 0 recounted'
    """

    stream: str
    partitions: tuple[Row, ...]

    @property
    def difference(self) -> str | None:
        """What the first partition of the stream's verdict says, or None where all are equal."""
        gravest = (row for row in self.partitions if row.difference and row.verdict == self.verdict)
        return next((f"partition {row.partition}: {row.difference}" for row in gravest), None)

    @property
    def verdict(self) -> str:
        """The verdict on the stream: the gravest of its partitions'."""
        found = {row.verdict for row in self.partitions}
        return next((word for word in EXIT_CODES if word in found), "none yet")

    @property
    def equal(self) -> bool:
        """Whether all was recounted and nothing differs."""
        return self.difference is None

    @property
    def counted(self) -> bool:
        """Whether anything was counted yet."""
        return any(row.counted for row in self.partitions)

    @property
    def records(self) -> int:
        """Records read again."""
        return sum(row.records for row in self.partitions)

    @property
    def reports(self) -> int:
        """Reports counted again."""
        return sum(row.reports for row in self.partitions)

    @property
    def malformed(self) -> int:
        """Malformed records among those read again."""
        return sum(row.malformed for row in self.partitions)

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed records among those read again, by reason."""
        rejected = sum((Counter(row.rejected) for row in self.partitions), Counter[str]())
        return dict(sorted(rejected.items()))

    @property
    def lag(self) -> int:
        """Offsets that were not counted yet."""
        return sum(row.lag for row in self.partitions)


# --- the recount: records in, counts out --------------------------------------------------------------------


def fingerprint(document: Mapping[str, Any]) -> bytes:
    """Returns the first four bytes of SHA-256 over a stream's public document in canonical JSON.

    Example:
        >>> fingerprint({"protocol": "grr", "epsilon": "1/1", "domain_size": 3}).hex()
        '8e9f39d0'
    """
    plain = dict(document)
    if plain.get("labels") is not None:
        plain["labels"] = hashlib.sha256(_canonical(plain["labels"])).hexdigest()
    return hashlib.sha256(_canonical(plain)).digest()[:4]


def recount(
    document: Mapping[str, Any],
    records: Iterable[Record],
    rule: Rule = Rule(),
    onto: Recount | None = None,
) -> Recount:
    r"""Counts records; O(bytes) and for OLH O(reports · d) hashes in bounded memory.

    Args:
        document: the stream's public document.
        records: (timestamp, value) pairs in any order.
        rule: by what they are judged.
        onto: an earlier recount, to which they are added; without it counting begins from nothing.

    Raises:
        AuditError: a protocol or hash that the audit does not know.

    Example:
        >>> document = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3}
        >>> frame = b"\x01" + fingerprint(document) + bytes([2, 0, 2])
        >>> result = recount(document, [(1000, frame), (1001, b"noise"), (1002, None)])
        >>> result.accepted, dict(result.rejected), result.watermark, result.reports, result.state.tolist()
        (1, {'version': 1, 'empty': 1}, 1000, 3, [1, 0, 2])
    """
    protocol = _protocol(document)
    mark = fingerprint(document)
    result = onto or Recount(0, Counter(), None, 0, np.zeros(protocol.entries, np.int64))
    pending = bytearray()

    def count_pending() -> None:
        reports = np.frombuffer(bytes(pending), protocol.columns)
        protocol.count(result.state, *(reports[name] for name in protocol.columns.names or ()))
        result.reports += len(reports)
        pending.clear()

    for timestamp, value in records:
        try:
            body = _body(value, mark, protocol, rule)
        except _Malformed as fault:
            result.rejected[fault.reason] += 1
            continue
        pending += body
        result.accepted += 1
        result.watermark = timestamp if result.watermark is None else max(result.watermark, timestamp)
        if len(pending) >= _PENDING_BYTES:
            count_pending()
    count_pending()
    return result


class _Malformed(Exception):  # noqa: N818  # an outcome of parsing, not an error of the audit
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _body(value: bytes | None, mark: bytes, protocol: "_Protocol", rule: Rule) -> bytes:
    """Returns a record's reports as the wire's bytes, or says why the whole record is rejected."""
    if not value:
        raise _Malformed("empty")
    if value[:1] == b"{":
        body = _json_body(value, mark, protocol, rule)
    elif value[0] != 1:
        raise _Malformed("version")
    # a frame too short for its fingerprint is truncated; a whole one that differs is of another stream
    elif len(value) < 5:
        raise _Malformed("length")
    elif value[1:5] != mark:
        raise _Malformed("fingerprint")
    else:
        body = value[5:]
        if not body or len(body) % protocol.columns.itemsize:
            raise _Malformed("length")
        if rule.most is not None and len(body) > rule.most * protocol.columns.itemsize:
            raise _Malformed("many")
    if not protocol.allowed(body):
        raise _Malformed("range")
    if rule.ones and not protocol.likely(body):
        raise _Malformed("ones")
    return body


def _json_body(value: bytes, mark: bytes, protocol: "_Protocol", rule: Rule) -> bytes:
    """Returns the reports of a JSON record as the wire's bytes; another stream's are not looked into."""
    try:
        tree = _JSON.decode(value.decode("utf-8"))
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise _Malformed("json") from None
    # objects come as tuples of pairs, so that a repeated key is seen and a nested object is nothing allowed
    if sorted(key for key, _ in tree) != ["fingerprint", "reports"]:
        raise _Malformed("json")
    said, listed = dict(tree)["fingerprint"], dict(tree)["reports"]
    if type(said) is not str or len(said) != 8 or not set(said) <= set("0123456789abcdef"):
        raise _Malformed("json")
    # some protocol's reports, whoever they are for: numbers, texts, lists of numbers
    if type(listed) is not list or any(
        {type(number) for number in item} - {int} if type(item) is list else type(item) not in (int, str)
        for item in listed
    ):
        raise _Malformed("json")
    if said != mark.hex():
        raise _Malformed("fingerprint")
    if not listed:
        raise _Malformed("length")
    if rule.most is not None and len(listed) > rule.most:
        raise _Malformed("many")
    if protocol.numbers is None:
        return b"".join(_from_base64(item, protocol.columns.itemsize) for item in listed)
    size = len(protocol.columns.names or ())
    reports = [[item] if size == 1 else item for item in listed]
    for report in reports:
        if type(report) is not list or [type(number) for number in report] != [int] * size:
            raise _Malformed("json")
    try:
        return b"".join(protocol.numbers.pack(*report) for report in reports)
    except struct.error:  # a number that its bytes cannot hold
        raise _Malformed("range") from None


def _from_base64(item: object, size: int) -> bytes:
    """Returns the bytes that a text of base64 stands for."""
    if type(item) is not str or not _BASE64.fullmatch(item) or len(body := b64decode(item)) != size:
        raise _Malformed("json")
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


def _canonical(tree: object) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _width(limit: int) -> int:
    """Returns the power of two of the bytes of the smallest unsigned integer that holds limit - 1."""
    return next(power for power in range(4) if limit <= 1 << (8 << power))


@dataclass(frozen=True)
class _Protocol:
    """How the reports of a protocol are written and counted.

    Attributes:
        entries: of the state.
        columns: the bytes of one report.
        numbers: what packs a report that JSON has as numbers; None where JSON has its bytes in base64.
        ones: what each report adds to the state's sum; None where that is not the same for all.
        allowed: whether the bytes of whole reports are within what the protocol allows.
        likely: whether such bytes could be honest clients'.
        count: adds reports to a state, given as columns.
    """

    entries: int
    columns: np.dtype[np.void]
    numbers: struct.Struct | None
    ones: int | None
    allowed: Callable[[bytes], bool]
    likely: Callable[[bytes], bool]
    count: Callable[..., None]


def _protocol(document: Mapping[str, Any]) -> _Protocol:
    d: int = document["domain_size"]
    match document:
        case {"protocol": "grr"}:
            return _of_numbers(d, (d,), _count_indices)
        case {"protocol": "olh", "g": g, "hash": ("mul32" | "xxh32") as name}:
            return _of_numbers(d, (1 << 32, g), partial(_count_olh, g=g, hashed=_HASHES[name]))
        case {"protocol": "olh", "hash": "mix32"}:
            raise AuditError(
                "hash mix32 is withdrawn: some pairs of values shared a bucket far more often than once in g seeds; "
                "nothing was ever released with it, use mul32"
            )
        case {"protocol": "oue" | "sue" as name, "epsilon": epsilon}:
            return _of_bits(d, None, lambda: _likely_ones(name, epsilon, d))
        case {"protocol": "subset", "k": k}:
            # whichever is shorter
            return _of_indices(d, k) if (k << _width(d)) <= (d + 7) // 8 else _of_bits(d, k)
        case {"protocol": "hadamard"}:
            size = 2
            while size <= d:
                size *= 2
            return _of_numbers(size, (size,), _count_indices)
        case {"protocol": "pgr", "prime": prime, "dimension": dimension}:
            points = sum(prime**i for i in range(dimension))
            return _of_numbers(points, (points,), _count_indices)
    said = {key: value for key, value in document.items() if key != "labels"}
    raise AuditError(f"{said}: the audit knows the protocols {_KNOWN}")


_KNOWN = "grr, olh with hash mul32 or xxh32, oue, sue, subset, hadamard and pgr"


def _of_numbers(entries: int, limits: tuple[int, ...], count: Callable[..., None]) -> _Protocol:
    """A report is a few numbers, each below its limit."""
    numbers = struct.Struct("<" + "".join("BHIQ"[_width(limit)] for limit in limits))
    columns = np.dtype([(f"f{i}", f"<u{1 << _width(limit)}") for i, limit in enumerate(limits)])

    def allowed(body: bytes) -> bool:
        return all(
            number < limit
            for report in numbers.iter_unpack(body)
            for number, limit in zip(report, limits, strict=True)
        )

    return _Protocol(
        entries, columns, numbers, 1 if len(limits) == 1 else None, allowed, lambda _: True, count
    )


def _of_bits(d: int, ones: int | None, bounds: Callable[[], tuple[int, int]] | None = None) -> _Protocol:
    """A report is a number below 2^d, least significant byte first: bit v is value v.

    Args:
        d: the number of bits.
        ones: how many are set, or None for any number.
        bounds: the fewest and the most that are likely, or None for any number.
    """
    size = (d + 7) // 8

    def reports(body: bytes) -> Iterator[int]:
        return (int.from_bytes(body[at : at + size], "little") for at in range(0, len(body), size))

    def allowed(body: bytes) -> bool:
        return all(bits >> d == 0 and ones in (None, bits.bit_count()) for bits in reports(body))

    def likely(body: bytes) -> bool:
        if bounds is None:
            return True
        low, high = bounds()
        return all(low <= bits.bit_count() <= high for bits in reports(body))

    def count(state: Counts, reports: npt.NDArray[np.uint8]) -> None:
        state += np.unpackbits(reports, axis=1, count=d, bitorder="little").sum(axis=0, dtype=np.int64)

    return _Protocol(d, np.dtype([("bits", "u1", (size,))]), None, ones, allowed, likely, count)


@cache
def _likely_ones(protocol: str, epsilon: str, d: int) -> tuple[int, int]:
    """Returns the fewest and the most ones of a unary report, but for 5·10^-13 on either side; O(d).

    The law is added up from no ones on: the own bit is 1 with probability p, of the d-1 others each with q.
    """
    with decimal.localcontext(prec=60, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX):
        numerator, denominator = map(Decimal, epsilon.split("/"))
        power = numerator / denominator / (2 if protocol == "sue" else 1)
        e = (power.exp() * 2**64).to_integral_value(decimal.ROUND_FLOOR) / 2**64
        p, q = (e / (e + 1) if protocol == "sue" else Decimal("0.5")), 1 / (e + 1)
        odds, unlikely = q / (1 - q), Decimal("5e-13")
        low, below = 0, Decimal(0)
        fewer, others = Decimal(0), (1 - q) ** (d - 1)  # the chance of k-1 and of k ones among the others
        for k in range(d + 1):
            if below <= unlikely:
                low = k
            below += (1 - p) * others + p * fewer
            if 1 - below <= unlikely:
                return low, k
            fewer, others = others, others * (odds * (d - 1 - k) / (k + 1))
    raise AssertionError("the chances of 0 to d ones add up to 1")


def _of_indices(d: int, k: int) -> _Protocol:
    """A report is k different values in ascending order."""
    columns = np.dtype([("indices", f"<u{1 << _width(d)}", (k,))])

    def allowed(body: bytes) -> bool:
        indices = np.frombuffer(body, columns)["indices"]
        return bool((indices[:, :-1] < indices[:, 1:]).all() and (indices[:, -1] < d).all())

    return _Protocol(d, columns, None, k, allowed, lambda _: True, _count_indices)


def _count_indices(state: Counts, indices: npt.NDArray[Any]) -> None:
    """Adds one at each index; nothing is allocated in proportion to the state."""
    np.add.at(state, indices.ravel().astype(np.int64), 1)


def _count_olh(
    state: Counts, seeds: npt.NDArray[Any], buckets: npt.NDArray[Any], g: int, hashed: "_Hash"
) -> None:
    """Adds, for each value, the reports whose hash of it is their bucket; O(n · d), a lane at a time."""
    for start in range(0, len(seeds), _LANE):
        seed = np.ascontiguousarray(seeds[start : start + _LANE], np.uint32)
        supports = hashed(seed, buckets[start : start + _LANE].astype(np.uint64), g)
        for first, last in _decades(len(state), rows=_LANE // len(seed)):
            hits = supports(np.arange(first, last, dtype=np.uint32)[:, np.newaxis])
            state[first:last] += np.count_nonzero(hits, axis=1)


def _decades(d: int, rows: int) -> Iterator[tuple[int, int]]:
    """Cuts 0..d-1 into stretches of at most ``rows`` values, all of one number of decimal digits."""
    first, decade = 0, 10
    while first < d:
        last = min(first + rows, decade, d)
        yield first, last
        first = last
        decade = decade * 10 if first == decade else decade


_Supports = Callable[[Words], npt.NDArray[np.bool_]]
"""(m, 1) values, all of one number of decimal digits -> (m, n): which of n reports support which."""
_Hash = Callable[[Words, npt.NDArray[np.uint64], int], _Supports]
"""(n,) seeds, (n,) buckets, g -> what these reports support."""


def _mul32(seed: Words, bucket: npt.NDArray[np.uint64], g: int) -> _Supports:
    """The hash "mul32": floor(x·g / 2^32) of a word x that the value's own four words make of the seed."""
    # the bucket is r exactly for x in [ceil(r·2^32 / g), ceil((r+1)·2^32 / g))
    low = ((bucket << 32) + (g - 1)) // g
    width = (((bucket + 1) << 32) + (g - 1)) // g - low
    low32, width32 = low.astype(np.uint32), width.astype(np.uint32)

    def supports(values: Words) -> npt.NDArray[np.bool_]:
        e = _mixed(values + 0x9E3779B1)
        b = _mixed(e + 0x9E3779B1)
        c = _mixed(b + 0x9E3779B1) & 0xCCCCCCCC | 0x11111111
        x = seed ^ e
        x *= 0xC2B2AE3D + values * 0x78DDE6C4
        x ^= x >> 11
        x ^= b
        x *= c
        x -= low32
        hits: npt.NDArray[np.bool_] = x < width32
        return hits

    return supports


def _mixed(x: Words) -> Words:
    """The words whose every bit depends on every bit of x."""
    mixed = x.copy()
    _avalanche(mixed, np.empty_like(x), (16, 0x7FEB352D), (15, 0x846CA68B), (16, 1))
    return mixed


def _xxh32(seed: Words, bucket: npt.NDArray[np.uint64], g: int) -> _Supports:
    """The hash "xxh32": xxHash32 of the value's decimal string, modulo g.

    A string shorter than 16 bytes is hashed four bytes at a time, then byte by byte.
    """
    bucket32 = bucket.astype(np.uint32)

    def supports(values: Words) -> npt.NDArray[np.bool_]:
        digits = len(str(values[0, 0]))
        text = [values // 10 ** (digits - 1 - i) % 10 + ord("0") for i in range(digits)]
        h = np.repeat(seed[np.newaxis] + (0x165667B1 + digits), len(values), axis=0)
        scratch = np.empty_like(h)
        words = digits // 4 * 4
        for i in range(0, words, 4):
            h += (text[i] | text[i + 1] << 8 | text[i + 2] << 16 | text[i + 3] << 24) * 0xC2B2AE3D
            _rotate(h, scratch, 17)
            h *= 0x27D4EB2F
        for byte in text[words:]:
            h += byte * 0x165667B1
            _rotate(h, scratch, 11)
            h *= 0x9E3779B1
        _avalanche(h, scratch, (15, 0x85EBCA77), (13, 0xC2B2AE3D), (16, 1))
        # h mod g by quotient and product: numpy divides by one number much faster than it takes remainders
        np.floor_divide(h, g, out=scratch)
        scratch *= g
        h -= scratch
        hits: npt.NDArray[np.bool_] = h == bucket32
        return hits

    return supports


def _rotate(x: Words, scratch: Words, left: int) -> None:
    np.left_shift(x, left, out=scratch)
    x >>= 32 - left
    x |= scratch


def _avalanche(x: Words, scratch: Words, *rounds: tuple[int, int]) -> None:
    """Mixes in place, each round a XOR with the own shift, then a product modulo 2^32."""
    for shift, factor in rounds:
        np.right_shift(x, shift, out=scratch)
        x ^= scratch
        x *= factor


_HASHES: Mapping[str, _Hash] = {"mul32": _mul32, "xxh32": _xxh32}


# --- what is stored: one consistent cut of a partition ------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """What Redis claims about one partition: the counts of [start, offset) without the gaps."""

    start: int
    offset: int
    accepted: int
    rejected: Mapping[str, int]
    late: int
    watermark: int | None
    gaps: list[tuple[int, int]]
    rules: list[tuple[int, Rule]]
    reports: int
    state: Counts


Cut = tuple[Mapping[str, str], Mapping[str, bytes | None]]
"""The fields of a partition's metadata, none if it has none; and the live blobs by window, None for a missing one."""

_BLOB = struct.Struct("<4sIq16sq")  # magic, state entries, offset, flush id, reports; then the entries
_TOGETHER = """
local found = {redis.call('HGETALL', KEYS[1])}
for i = 2, #KEYS do
  found[i] = redis.call('GET', KEYS[i])
end
return found
"""
"""A script that reads a hash and strings as they stand together. KEYS: the hash, then the strings."""


def _cut(client: "redis.Redis", prefix: str) -> Cut:
    """Reads a partition's metadata and the blobs that they name, in one script."""
    together = client.register_script(_TOGETHER)
    names = ["all"]
    while True:
        flat, *blobs = together(keys=[f"{prefix}meta", *(f"{prefix}window:{name}" for name in names)])
        said = [item.decode(errors="replace") for item in flat]
        fields = dict(zip(said[::2], said[1::2], strict=True))
        try:
            named = sorted(json.loads(fields["blobs"])) or ["all"]
        except (KeyError, ValueError, TypeError):
            named = ["all"]  # nothing is named yet or the names are damaged, which is judged later
        if names == named:
            return fields, dict(zip(names, blobs, strict=True))
        names = named


def _decode(
    fields: Mapping[str, str], blobs: Mapping[str, bytes | None], group: str, mark: bytes, size: int
) -> _Stored | None:
    """Decodes a cut, or None where nothing is claimed.

    Raises:
        _Difference: the cut does not hold together, or is of another stream.
    """
    if not fields:
        if any(blob is not None for blob in blobs.values()):
            raise _Difference("metadata: missing, but there are counts")
        return None
    try:
        lineage, named, totals = (json.loads(fields[key]) for key in ("lineage", "blobs", "totals"))
        offset, flush = int(fields["offset"]), fields["flush"]
        due = {"fingerprint": mark.hex(), "group": group, "layout": 1, "windows": "cumulative"}
        for key, value in due.items():
            if lineage[key] != value:
                raise _Difference(
                    f"lineage: {key} is {lineage[key]!r} in Redis, {value!r} by the configuration"
                )
        reports, state = 0, np.zeros(size, np.int64)
        if flush:
            if list(named) != ["all"]:
                raise _Difference(f"metadata: the blobs named are {sorted(named)}, not 'all'")
            reports, state = _decode_blob(blobs["all"], named["all"], offset, flush, size)
        elif blobs.get("all") is not None:
            raise _Difference("metadata: of before the first commit, but there are counts")
        return _Stored(
            start=int(totals["start"]),
            offset=offset,
            accepted=totals["accepted"],
            rejected=dict(totals["rejected"]),
            late=totals["late"],
            watermark=totals["watermark"],
            gaps=[(begin, end) for begin, end in totals["gaps"]],
            rules=_rules(totals),
            reports=reports,
            state=state,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise _Difference(f"metadata: {dict(fields)} cannot be read ({error!r})") from None


def _rules(totals: Mapping[str, Any]) -> list[tuple[int, Rule]]:
    """Returns each recorded rule with the offset that it holds from; before there were any, everything counted."""
    if "rules" not in totals:
        return [(totals["start"], Rule(None, ones=False))]
    rules = [(int(said["offset"]), Rule(said["most_reports"], said["ones"])) for said in totals["rules"]]
    offsets = [offset for offset, _ in rules]
    if not rules or offsets[0] > totals["start"] or offsets != sorted(offsets):
        raise ValueError(f"rules of the offsets {offsets}")
    if any(said.keys() != {"offset", "revision", "most_reports", "ones"} for said in totals["rules"]):
        raise ValueError("rules that the audit does not know")
    return rules


def _decode_blob(blob: bytes | None, named: str, offset: int, flush: str, size: int) -> tuple[int, Counts]:
    """Returns the reports and the state of a live blob that is the one which the metadata name."""
    if blob is None:
        raise _Difference("counts: the blob that the metadata name is missing")
    if len(blob) != _BLOB.size + 8 * size:
        raise _Difference(f"counts: the blob has {len(blob)} bytes, {_BLOB.size + 8 * size} are due")
    magic, entries, written_at, written_by, reports = _BLOB.unpack_from(blob)
    if (magic, entries) != (b"LDP1", size):
        raise _Difference(
            f"counts: the blob says {magic!r} and {entries} entries; b'LDP1' and {size} are due"
        )
    if written_by.hex() != named:
        raise _Difference(f"counts: the blob is of flush {written_by.hex()}, the metadata name {named}")
    if written_at > offset or (named == flush and written_at != offset):
        raise _Difference(f"counts: the blob is of offset {written_at}, the metadata of {offset}")
    return reports, np.frombuffer(blob, "<i8", offset=_BLOB.size).astype(np.int64)


# --- the log, read again ------------------------------------------------------------------------------------


def _stretches(stored: _Stored, begin: int, end: int) -> tuple[list[Stretch], list[Stretch]]:
    """Returns the stretches that the stored counts claim to be of: those in a log of [begin, end), and those deleted.

    Raises:
        _Difference: the log was never as long, or more could have been counted than was.
    """
    if stored.start > begin:
        raise _Difference(f"start: {stored.start} in Redis, but the log begins at {begin} already")
    if stored.offset > end:
        raise _Difference(
            f"offset: {stored.offset} in Redis, but the log ends at {end}: truncated or made anew"
        )
    at, stretches = stored.start, []
    for lost, found in [*stored.gaps, (stored.offset, stored.offset)]:
        if not at <= lost <= found <= stored.offset:
            raise _Difference(f"gaps: {stored.gaps} do not ascend within [{stored.start}, {stored.offset})")
        if begin < found and lost < found:
            raise _Difference(f"gaps: [{lost}, {found}) in Redis, but the log still has it from {begin} on")
        if at < lost:
            stretches.append((at, lost))
        at = found
    there = [(max(a, begin), b) for a, b in stretches if begin < b]
    return there, [(a, min(b, begin)) for a, b in stretches if a < begin]


def _ruled(stored: _Stored, stretches: list[tuple[int, int]]) -> Iterator[tuple[int, int, Rule]]:
    """Cuts stretches of the log where another rule begins to hold."""
    until = [offset for offset, _ in stored.rules[1:]] + [stored.offset]
    for (since, rule), end in zip(stored.rules, until, strict=True):
        for a, b in stretches:
            if max(a, since) < min(b, end):
                yield max(a, since), min(b, end), rule


def _read(
    consumer: KafkaConsumer, tp: TopicPartition, advanced: Callable[[int], None], begin: int, end: int
) -> Iterator[Record | Deleted]:
    """Yields time and value of the committed records of [begin, end), and which offsets are deleted meanwhile."""
    for item in _records(consumer, tp, advanced, begin, end):
        yield item if isinstance(item, Deleted) else (item.timestamp, item.value)


def _records(
    consumer: KafkaConsumer, tp: TopicPartition, advanced: Callable[[int], None], begin: int, end: int
) -> Iterator[Any]:
    """Yields the committed records of [begin, end); markers, aborted and compacted records are passed.

    Where records are deleted while they are read, it says which offsets and goes on behind them.
    """
    consumer.assign([tp])
    consumer.seek(tp, begin)
    position, moved = begin, time.monotonic()
    while position < end:
        try:
            polled = consumer.poll(timeout_ms=500, max_records=5000).get(tp, ())
        except OffsetOutOfRangeError:
            first = consumer.beginning_offsets([tp])[tp]
            if first <= position:
                said = (
                    f"{tp.topic}-{tp.partition}: the log now ends before offset {position}: it was truncated"
                )
                raise AuditError(said) from None
            yield Deleted((position, min(first, end)))
            consumer.seek(tp, first)
            position, moved = first, time.monotonic()
            continue
        for record in polled:
            if record.offset < end:
                yield record
        if (now := consumer.position(tp)) > position:
            position, moved = now, time.monotonic()
            advanced(min(position, end))
        elif time.monotonic() - moved > _STALL_SECONDS:
            raise AuditError(
                f"{tp.topic}-{tp.partition}: no progress at offset {position} in {_STALL_SECONDS:.0f} s"
            )


# --- the comparison -----------------------------------------------------------------------------------------


def audit(served: Served, config: Config, progress: Callable[[int, int], None] | None = None) -> Verdict:
    """Recounts a stream's topic up to the stored offsets and compares.

    Args:
        served: the stream and its topic.
        config: where Kafka and Redis are.
        progress: called with offsets passed and offsets in all, as the log is read.

    Raises:
        AuditError: the topic is missing, a protocol is unknown, or the log stands still.
        kafka.errors.KafkaError: the brokers do not answer.
        redis.RedisError: Redis does not answer.
    """
    password = config.redis.password.get_secret_value() if config.redis.password else None
    with (
        KafkaConsumer(
            **config.kafka.client(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            max_partition_fetch_bytes=8 << 20,
        ) as consumer,
        redis.Redis.from_url(
            config.redis.url,
            password=password,
            socket_timeout=config.redis.timeout_seconds,
            socket_connect_timeout=config.redis.timeout_seconds,
            retry=Retry(NoBackoff(), 1),
        ) as client,
    ):
        numbers = consumer.partitions_for_topic(served.topic)
        if not numbers:
            raise AuditError(
                f"topic {served.topic!r}: there is none at {', '.join(config.kafka.bootstrap_servers)};"
                " ldp-worker create-topics makes what is missing"
            )
        topic = [TopicPartition(served.topic, number) for number in sorted(numbers)]
        words = _words(config.kafka.client(), config.consumer_group(served.stream), served.topic)
        published = _published(consumer, config.snapshots.topic, served.stream.name)
        begins, ends = consumer.beginning_offsets(topic), consumer.end_offsets(topic)
        total, passed = sum(ends[tp] - begins[tp] for tp in topic), 0
        document, group = served.stream.document(), config.consumer_group(served.stream)
        rows = []
        for tp in topic:

            def advanced(position: int, before: int = passed - begins[tp]) -> None:
                if progress is not None:
                    progress(min(before + position, total), total)

            cut = _cut(client, f"{{{served.stream.name}:{tp.partition}}}:")
            # after the cut, so that a worker which counts on is never ahead of the log that we know
            bounds = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
            read = partial(_read, consumer, tp, advanced)
            rows.append(
                verify(
                    document,
                    tp.partition,
                    group=group,
                    cut=cut,
                    bounds=bounds,
                    read=read,
                    word=words.get(tp.partition, ""),
                    published=published.get(tp.partition, 0),
                )
            )
            passed += ends[tp] - begins[tp]
            advanced(ends[tp])
        beyond = len(topic)
        if client.exists(f"{{{served.stream.name}:{beyond}}}:meta"):
            rows.append(
                Row(beyond, None, 0, 0, difference="counted in Redis, but the topic has no such partition")
            )
    return Verdict(served.stream.name, tuple(rows))


def _words(settings: dict[str, Any], group: str, topic: str) -> dict[int, str]:
    """Returns the metadata words of the offsets that a group has committed for a topic."""
    deadline = time.monotonic() + _COORDINATOR_SECONDS
    with closing(KafkaAdminClient(**settings)) as admin:
        while True:
            try:
                offsets = admin.list_group_offsets({group: None})[group]
                break
            except RetriableError:  # a coordinator that only just starts
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.2)
    return {tp.partition: committed.metadata for tp, committed in offsets.items() if tp.topic == topic}


def _published(consumer: KafkaConsumer, topic: str, stream: str) -> dict[int, int]:
    """Returns the offsets that the newest snapshot of a stream says were counted; none if there is no snapshot."""
    if not consumer.partitions_for_topic(topic):
        return {}
    tp = TopicPartition(topic, 0)
    first, end, step = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp], 100
    while first < end:
        begin = max(first, end - step)
        newest = None
        for record in _records(consumer, tp, lambda _: None, begin, end):
            if not isinstance(record, Deleted) and record.key == f"{stream}/head".encode():
                newest = record
        if newest is not None:
            said = json.loads(newest.value)["offsets"] if newest.value else {}
            return {int(partition): offset for partition, offset in said.items()}
        end, step = begin, 2 * step
    return {}


def verify(
    document: Mapping[str, Any],
    partition: int,
    *,
    group: str,
    cut: Cut,
    bounds: tuple[int, int],
    read: Callable[[int, int], Iterable[Record | Deleted]],
    word: str = "",
    published: int = 0,
) -> Row:
    """Judges what is stored of one partition; knows neither Kafka nor Redis.

    Args:
        document: the stream's public document.
        partition: its number.
        group: the consumer group that counts the stream.
        cut: the metadata's fields and the blobs by window, as stored together.
        bounds: the log's first offset and its last stable one, read after the cut.
        read: the committed records of [from, to), and what of it was deleted while it was read.
        word: the metadata word of the offset that the group has committed; other than "claimed", progress was counted.
        published: the offset up to which the newest snapshot says it was counted, or 0.
    """
    begin, end = bounds
    row = Row(partition, None, 0, end - begin)
    try:
        protocol = _protocol(document)
        stored = _decode(*cut, group, fingerprint(document), protocol.entries)
        if stored is None:
            if word not in ("", "claimed"):
                raise _Difference(
                    "nothing in Redis, but Kafka's group has counted progress: the counts were lost"
                )
            if published:
                raise _Difference(
                    f"nothing in Redis, but a snapshot was published of offsets up to {published}: the counts were lost"
                )
            return row
        row = replace(row, start=stored.start, offset=stored.offset, lag=max(0, end - stored.offset))
        if stored.offset < min(begin, published):
            raise _Difference(
                f"offset: {stored.offset} in Redis, {published} in the newest snapshot, and the log begins at {begin}:"
                " what was counted in between is lost"
            )
        stretches, deleted = _stretches(stored, begin, end)

        def remaining(first: int, last: int) -> Iterator[Record]:
            for item in read(first, last):
                if isinstance(item, Deleted):
                    deleted.append(item.stretch)
                else:
                    yield item

        counted = recount(document, ())
        for first, last, rule in _ruled(stored, stretches):
            counted = recount(document, remaining(first, last), rule, onto=counted)
        row = replace(
            row,
            records=counted.accepted + counted.rejected.total(),
            reports=counted.reports,
            rejected=dict(sorted(counted.rejected.items())),
        )
        if deleted:
            _compare_partly(stored, counted, deleted, protocol.ones)
        else:
            _compare(stored, counted)
        said = _said(stored.gaps, deleted, row.records)
        return replace(row, gaps=tuple(stored.gaps), deleted=tuple(deleted), difference=said)
    except _Difference as difference:
        return replace(row, difference=str(difference))


def _said(gaps: Sequence[Stretch], deleted: Sequence[Stretch], records: int) -> str | None:
    """Says what keeps a partition from being equal where nothing differs."""
    said = []
    if gaps:
        lost = ", ".join(_lost(*gap) for gap in gaps)
        said.append(f"gap: {lost}: recorded as lost, deleted before they were counted")
    if deleted:
        gone = ", ".join(_lost(*stretch) for stretch in deleted)
        said.append(f"not recountable: {gone}: counted, then deleted")
        said.append(f"nothing differs in what remains: {records:,} records" if records else "none remains")
    elif gaps:
        said.append("all else equals the log")
    return "; ".join(said) or None


def _lost(begin: int, end: int) -> str:
    """Names the offsets of [begin, end)."""
    return f"offset {begin}" if end == begin + 1 else f"offsets {begin} to {end - 1}"


def _compare(stored: _Stored, counted: Recount) -> None:
    """Compares everything that is kept of a partition, but for its gaps.

    Raises:
        _Difference: the first one.
    """
    reasons = sorted({*stored.rejected, *counted.rejected})
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *(
            (f"rejected as {reason}", stored.rejected.get(reason, 0), counted.rejected[reason])
            for reason in reasons
        ),
        ("late", stored.late, 0),
        ("watermark", stored.watermark, counted.watermark),
        ("reports", stored.reports, counted.reports),
    ):
        if held != found:
            raise _Difference(f"{what}: {held} in Redis, {found} recounted")
    differing = np.flatnonzero(stored.state != counted.state)
    if len(differing):
        v = int(differing[0])
        raise _Difference(
            f"state[{v}]: {stored.state[v]} in Redis, {counted.state[v]} recounted; "
            f"{len(differing)} of {len(stored.state)} entries differ"
        )


def _compare_partly(stored: _Stored, counted: Recount, deleted: Sequence[Stretch], ones: int | None) -> None:
    """Compares what is kept of a partition with what remains of its records: can the rest be counts of records, too?

    Args:
        stored: what is kept.
        counted: what the remaining records amount to.
        deleted: the stretches whose records are gone.
        ones: what each report adds to the state's sum, if that is the same for all.

    Raises:
        _Difference: what remains is more than what is stored, or no records of the deleted stretches make the rest.
    """
    reasons = sorted({*stored.rejected, *counted.rejected})
    for what, held, found in (
        ("accepted", stored.accepted, counted.accepted),
        *(
            (f"rejected as {reason}", stored.rejected.get(reason, 0), counted.rejected[reason])
            for reason in reasons
        ),
        ("reports", stored.reports, counted.reports),
    ):
        if held < found:
            raise _Difference(f"{what}: {held} in Redis, {found} recounted of what remains")
    if stored.late:
        raise _Difference(f"late: {stored.late} in Redis, 0 recounted")
    if len(fewer := np.flatnonzero(stored.state < counted.state)):
        v = int(fewer[0])
        raise _Difference(
            f"state[{v}]: {stored.state[v]} in Redis, {counted.state[v]} recounted of what remains; "
            f"{len(fewer)} of {len(stored.state)} entries are too small"
        )
    # the rest: what the deleted records must have amounted to
    accepted = stored.accepted - counted.accepted
    records = accepted + sum(stored.rejected.values()) - counted.rejected.total()
    reports, state = stored.reports - counted.reports, stored.state - counted.state
    offsets = sum(end - begin for begin, end in deleted)
    mark, least = stored.watermark, counted.watermark
    marks = (mark is not None and (least is None or mark >= least)) if accepted else mark == least
    if records > offsets:
        raise _Difference(f"records: {offsets} offsets were deleted, {records} records were counted there")
    if reports < accepted or (reports and not accepted):
        raise _Difference(f"reports: {reports} of {accepted} accepted records that were deleted")
    if not marks:
        raise _Difference(f"watermark: {mark} in Redis, {least} recounted of what remains")
    if len(more := np.flatnonzero(state > reports)):
        v = int(more[0])
        raise _Difference(
            f"state[{v}]: {state[v]} of {reports} deleted reports; {len(more)} of {len(state)} entries are too large"
        )
    if ones is not None and (total := int(state.sum())) != ones * reports:
        raise _Difference(f"state: the sum of {reports} deleted reports is {total}, {ones * reports} is due")


# --- what is said -------------------------------------------------------------------------------------------


def render(verdict: Verdict) -> RenderableType:
    """Returns a verdict for the terminal: a row a partition, a row a reason, what differs, the outcome last."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("partition", "offset", "lag", "reports", "malformed"):
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("verdict")
    for row in verdict.partitions:
        numbers = (row.offset, row.lag, row.reports, row.malformed)
        style = _STYLES.get(row.verdict, "")
        table.add_row(str(row.partition), *(f"{n:,}" for n in numbers), Text(row.verdict, style=style))
    said = [Text(f"partition {r.partition}: {r.difference}") for r in verdict.partitions if r.difference]
    reasons = [_reasons(verdict)] if verdict.malformed else []
    title = Text(f"audit of {verdict.stream}", style="bold")
    return Group(title, table, *reasons, *said, Text(outcome(verdict)))


_STYLES = {"equal": "green", "not recountable": "yellow", "different": "bold red", "gap": "bold red"}


def _reasons(verdict: Verdict) -> Table:
    """Returns the reasons of the malformed records: how many, and in which partitions."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("malformed")
    table.add_column("records", justify="right", overflow="fold")
    table.add_column("in partition")
    for reason, count in verdict.rejected.items():
        where = ", ".join(str(row.partition) for row in verdict.partitions if row.rejected.get(reason))
        table.add_row(reason, f"{count:,}", where)
    return table


def outcome(verdict: Verdict) -> str:
    """Says what a verdict comes to.

    Example:
        >>> outcome(Verdict("colours", (Row(0, 0, 9, 2, 9, 18), Row(1, 0, 5, 0, 5, 5, {"json": 1}))))
        'equal: 23 reports in 14 records, 1 malformed'
        >>> outcome(Verdict("colours", (Row(0, 0, 9, 2, difference="late: 3 in Redis, 0 recounted"),)))
        'different in partition 0'
    """
    counted = f"{verdict.reports:,} reports in {verdict.records:,} records, {verdict.malformed:,} malformed"
    if different := [str(row.partition) for row in verdict.partitions if row.verdict == "different"]:
        return f"different in partition {', '.join(different)}"
    gaps = " except for the recorded gaps" if verdict.verdict == "gap" else ""
    if deleted := [str(row.partition) for row in verdict.partitions if row.deleted]:
        remains = f"nothing differs{gaps} in what remains: {counted}"
        return f"not recountable in partition {', '.join(deleted)}; {remains}"
    return f"equal{gaps}: {counted}" if verdict.counted else "nothing is counted yet: no verdict"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Returns a verdict in JSON's types.

    For the stream and, under ``partitions``, for each one: ``verdict``, one of `EXIT_CODES`; ``equal``, whether all was
    recounted, nothing differs and nothing is recorded as lost; ``counted``, whether anything was counted yet;
    ``difference``, the first one, or what else keeps it from being equal, or null; ``lag``, offsets not counted yet;
    ``records``, ``reports`` and ``malformed``, how many were read again; ``rejected``, the malformed ones by reason.
    For each partition too: ``partition``, ``start``, ``offset``, and, if nothing else differs, the stretches [from, to)
    of ``gaps``, which are recorded as lost, and ``deleted``, which were counted and then deleted.

    Example:
        >>> tree = as_json(Verdict("colours", (Row(0, 0, 9, 2, 9, 18, {"json": 2}),)))
        >>> tree["equal"], tree["counted"], tree["malformed"], tree["rejected"], tree["partitions"][0]["rejected"]
        (True, True, 2, {'json': 2}, {'json': 2})
    """

    def common(of: Verdict | Row) -> dict[str, Any]:
        return {
            "verdict": of.verdict,
            "equal": of.difference is None,
            "counted": of.counted,
            "difference": of.difference,
            "records": of.records,
            "reports": of.reports,
            "malformed": of.malformed,
            "rejected": dict(of.rejected),
            "lag": of.lag,
        }

    rows = [
        {"partition": row.partition, "start": row.start, "offset": row.offset}
        | common(row)
        | {"gaps": [list(gap) for gap in row.gaps], "deleted": [list(gone) for gone in row.deleted]}
        for row in verdict.partitions
    ]
    return {"stream": verdict.stream} | common(verdict) | {"partitions": rows}
