"""Validates documents against ``snapshot.schema.json`` and size limits.

An accepted document has the types of the schema, numbers that fit in 64 bits, and no more entries than a stream can
have. Unknown fields are ignored.
"""

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ldp.arguments import MAX_DOMAIN
from ldp.consistency import METHODS
from ldp.snapshot import parts
from ldp.snapshot.contents import ALL_TIME, LATE
from ldp.snapshot.documents import BASE_ONLY, KNOWN, SCHEMA, VECTORS

MOST_BYTES = 16 << 20  # Largest size of a head or a body
MOST_RANK = 100_000  # Highest rank of a row, and largest number of rows of one snapshot
_MOST = 2**63 - 1
_LAST_SEQUENCE = 2**53 - 1  # Highest number of a snapshot; every JSON reader reads it exactly
_LAST_TIME = 253_402_300_799_999  # End of the year 9999 in milliseconds
_MOST_KEYS = 200_000
_MOST_ITEMS = 1 << 22
_MOST_DOCUMENTS = 16
_DEEPEST = 5  # Deepest nesting of a stream's public document

Check = Callable[[str, Any], None]  # Raises ValueError; arguments: a field's name and value


def _wrong(at: str, given: object, allowed: str) -> ValueError:
    return ValueError(f"{at}: {reprlib.repr(given)} given; allowed is {allowed}")


def _integer(low: int = -_MOST, high: int = _MOST) -> Check:
    def check(at: str, given: Any) -> None:
        if type(given) is not int or not low <= given <= high:
            raise _wrong(at, given, f"a whole number from {low} to {high}")

    return check


def _number(at: str, given: Any) -> None:
    if type(given) not in (int, float) or not math.isfinite(given):
        raise _wrong(at, given, "a finite number")


def _flag(at: str, given: Any) -> None:
    if type(given) is not bool:
        raise _wrong(at, given, "true or false")


def _text(pattern: str, what: str) -> Check:
    compiled = re.compile(pattern, re.ASCII | re.DOTALL)

    def check(at: str, given: Any) -> None:
        if type(given) is not str or not compiled.fullmatch(given):
            raise _wrong(at, given, what)

    return check


def _plain(least: int, most: int) -> Check:
    text = rf"[^\0-\x1f\x7f-\x9f\ud800-\udfff]{{{least},{most}}}"
    return _text(text, f"a text of {least} to {most} characters without control characters")


def _or_null(other: Check) -> Check:
    def check(at: str, given: Any) -> None:
        if given is not None:
            other(at, given)

    return check


def _list(each: Check, most: int = _MOST_ITEMS) -> Check:
    def check(at: str, given: Any) -> None:
        if type(given) is not list or len(given) > most:
            raise _wrong(at, given, f"a list of up to {most}")
        for one in given:
            each(at, one)

    return check


def _integers(low: int) -> Check:
    """Returns a check of lists of whole numbers that is faster than `_list`."""

    def check(at: str, given: Any) -> None:
        if type(given) is not list or len(given) > _MOST_ITEMS or not {*map(type, given)} <= {int}:
            raise _wrong(at, given, f"a list of up to {_MOST_ITEMS} whole numbers")
        if given and not low <= min(given) <= max(given) <= _MOST:
            raise _wrong(at, given, f"whole numbers from {low} to {_MOST}")

    return check


def _numbers(at: str, given: Any) -> None:
    """Checks a list of finite numbers; faster than `_list`."""
    if type(given) is not list or len(given) > _MOST_ITEMS or not {*map(type, given)} <= {int, float}:
        raise _wrong(at, given, f"a list of up to {_MOST_ITEMS} numbers")
    if not all(map(math.isfinite, given)):
        raise _wrong(at, given, "finite numbers")


def _numbers_or_nulls(at: str, given: Any) -> None:
    _numbers(at, [one for one in given if one is not None] if type(given) is list else given)


def _range(at: str, given: Any) -> None:
    _integers(-_MOST)(at, given)
    if len(given) != 2 or given[0] > given[1]:
        raise _wrong(at, given, "a start and an end that is not before the start")


def _step(at: str, given: Any) -> None:
    if type(given) is not list or [type(one) for one in given] not in ([int, int], [int, type(None)]):
        raise _wrong(at, given, "a time, and a whole number or null")


def _status(at: str, given: Any) -> None:
    if type(given) is not list or [type(one) for one in given] != [int, bool] or given[0] < 0:
        raise _wrong(at, given, "a version, and whether it is retired")


def _loss(at: str, given: Any) -> None:
    if given != "infinite":
        _number(at, given)


def _mapping(key: Check, each: Check) -> Check:
    def check(at: str, given: Any) -> None:
        if type(given) is not dict or len(given) > _MOST_KEYS:
            raise _wrong(at, given, f"an object of up to {_MOST_KEYS} keys")
        for name, one in given.items():
            key(at, name)
            each(at, one)

    return check


def _fields(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    known = {**required, **(optional or {})}

    def check(at: str, given: Any) -> None:
        if type(given) is not dict or len(given) > _MOST_KEYS:
            raise _wrong(at, given, "an object")
        if missing := sorted(required.keys() - given.keys()):
            raise _wrong(at, sorted(given)[:20], f"an object with the key {missing[0]!r}")
        for name, one in known.items():
            if name in given:
                one(f"{at}.{name}", given[name])

    return check


def _shallow(at: str, given: Any, depth: int = _DEEPEST) -> None:
    if not depth:
        raise _wrong(at, given, f"JSON nested up to {_DEEPEST} levels deep")
    if isinstance(given, dict | list):
        for one in given.values() if isinstance(given, dict) else given:
            _shallow(at, one, depth - 1)


def _period(at: str, given: Any) -> None:
    _fields({"name": _NAME, "start": _or_null(_TIME), "end": _or_null(_TIME), "final": _flag})(at, given)
    if {given["start"] is None, given["end"] is None} != {given["name"] in (ALL_TIME.name, LATE.name)}:
        raise _wrong(at, given, "start and end for a window, null for all and late")


_NAME = _text(".{1,1000}", "a text of up to 1000 characters")
_METHOD = _text("[a-z-]{1,40}", "a method's name")
_TIME = _text(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "a time in UTC, to the millisecond")
_FINGERPRINT = _text("[0-9a-f]{8}", "a fingerprint")
_PARTITION = _text("0|[1-9][0-9]{0,9}", "a partition")
_STREAM = _text(parts.NAME, "the name of a stream or a part")
_COUNT = _integer(0)
_OFFSETS = _mapping(_PARTITION, _COUNT)
_SHARED = {
    "schema": _integer(1, SCHEMA),
    "stream": _STREAM,
    "fingerprint": _FINGERPRINT,
    "window": _period,
    "sequence": _integer(1, _LAST_SEQUENCE),
    "reports": _COUNT,
    "offsets": _OFFSETS,
    "complete": _flag,
    "gaps": _mapping(_PARTITION, _list(_range)),
    "uncounted": _integers(0),
    "snapshot": _text("[0-9a-f]{32}", "32 hexadecimal digits"),
}
_SOMETIMES = {
    "epsilon": _text("[0-9]{1,200}/[0-9]{1,200}|infinite", "a rational"),
    "published": _integer(0, _LAST_TIME),
    "withheld": _COUNT,
}
_STATUSES = _mapping(_NAME, _status)
_RULE = _fields(
    {"offset": _COUNT, "revision": _COUNT, "most_reports": _or_null(_COUNT), "hamming_weight": _flag},
    {"max_batch_bytes": _COUNT, "windows": _list(_NAME, 1000)}
    | dict.fromkeys(("grace", "max_out_of_orderness", "fewest_new"), _COUNT)
    | dict.fromkeys(("documents", "segments"), _STATUSES),
)
_SLOTS = {
    "methods": _list(_METHOD, 100),
    "ranks": _mapping(_text(".{0,1000}", "a query's name"), _integer(1)),
}
_ROWS = {"topic": _NAME, "older": _or_null(_fields(_SLOTS | {"until": _integer()}))}
_LINE = {"closed": _integer(), "bounded": _list(_range), "starts": _integers(0)}
_RELEASED = _fields({"closed": _integer(), "fewest": _list(_step, 1 << 16)})
_LOSS = _fields(
    {"fewest_new": _integer(2), "operator": _loss, "readers": _or_null(_loss), "delta": _number},
)
_ANY = _fields(
    _SHARED | {"schema": _integer(1)},
    _SOMETIMES
    | {"standard_error": _number, "privacy_loss": _LOSS, "windows": _mapping(_NAME, _fields(_LINE))},
)
_DOCUMENT = _fields(
    {"fingerprint": _FINGERPRINT, "document": _shallow, "reports": _COUNT, "variance_share": _number}
    | {"retired": _flag, "partitions": _COUNT}
)
_HEAD = _fields(
    _SHARED
    | {"rules": _mapping(_PARTITION, _list(_RULE, 100_000)), "documents": _list(_DOCUMENT, _MOST_DOCUMENTS)},
    _SOMETIMES
    | {
        "methods": _list(_METHOD, 100),
        "rows": _or_null(_fields(_SLOTS | _ROWS)),
        "floors": _mapping(_PARTITION, _integer()),
        "windows": _mapping(_NAME, _fields(_LINE)),
        "reached": _or_null(_integer()),
        "released": _RELEASED,
        "privacy_loss": _LOSS,
        "segments": _mapping(_NAME, _COUNT),
        "hidden": _COUNT,
        "parts_fewest": _integer(1),
        "lineage": _or_null(_mapping(_NAME, _NAME)),
    },
)
_RECOMMENDED = _or_null(_fields({"method": _METHOD, "sequence": _integer(0, _LAST_SEQUENCE)}))
_QUERY = {"name": _NAME, "values": _integers(0), "recommended": _RECOMMENDED}
_SET = _fields(
    _QUERY | {"frequency": _or_null(_number)},
    dict.fromkeys((*BASE_ONLY, "standard_error"), _number) | {KNOWN: _COUNT},
)
_TOP = _fields(_QUERY | {"frequencies": _numbers}, dict.fromkeys(BASE_ONLY, _numbers))
_COUNTED = _fields({"fingerprint": _FINGERPRINT, "document": _shallow, "reports": _COUNT})
_BODY = _fields(
    _SHARED
    | {
        "sum": _number,
        "standard_error": _number,
        "level": _number,
        "queries": _list(_SET),
        "top": _list(_TOP),
        "chunks": _integer(0, 1 << 20),
    },
    _SOMETIMES
    | dict.fromkeys(VECTORS, _numbers_or_nulls)
    | {
        KNOWN: _integers(0),
        "document": _shallow,
        "documents": _list(_COUNTED, _MOST_DOCUMENTS),
        "additive": _flag,
        "method": _METHOD,
        "vectors": _list(_NAME, 100),
    },
)
_DOMAIN = _fields(
    {
        "fingerprint": _FINGERPRINT,
        "chunks": _integer(0, 1 << 20),
        "labels": _or_null(_list(_text(".*", "a text"))),
    },
    {"fingerprints": _list(_FINGERPRINT, _MOST_DOCUMENTS)},
)
_ROW_KEY = _fields(
    {
        "stream": _plain(1, 200),
        "window_name": _plain(1, 64),
        "window_start": _integer(0, _LAST_TIME + 1),
        "method": _text("|".join(METHODS), f"one of {', '.join(METHODS)}"),
        "query": _plain(0, 200),
        "rank": _integer(1, MOST_RANK),
    }
)
_ROW_VALUE = _fields(
    {
        "value": _or_null(_integer(0, MAX_DOMAIN - 1)),
        "label": _or_null(_plain(1, _MOST_ITEMS)),
        "window_end": _or_null(_integer(0, _LAST_TIME + 1)),
        "n": _COUNT,
        "sequence": _integer(1),
    }
    | {"estimate": _number, "low": _or_null(_number), "high": _or_null(_number)}
    | {"final": _flag, "complete": _flag},
)
check_shared = partial(_ANY, "document")
"""Raises ValueError for invalid fields that heads and bodies share."""
check_domain = partial(_DOMAIN, "domain")
"""Raises ValueError unless a document is the domain of a stream."""
check_row_key, check_row_value = partial(_ROW_KEY, "key"), partial(_ROW_VALUE, "value")
"""Raise ValueError for a missing or invalid column. The check of a value skips the columns of the key."""


def check_head(document: Any) -> None:
    """Raises ValueError unless a document is a head of a supported schema."""
    _HEAD("head", document)
    _check_documents("head", document, document["documents"])


def _check_documents(at: str, message: Any, documents: Any) -> None:
    """Checks the documents of a head or body; several need schema 2."""
    if not documents or not all(type(one["document"]) is dict for one in documents):
        raise _wrong(f"{at}.documents", documents, "at least one, each an object")
    if (message["schema"] == 1) != (len(documents) == 1):
        raise _wrong(f"{at}.documents", documents, "one document in schema 1, several in schema 2")


def check_body(document: Any) -> None:
    """Raises ValueError unless a document is the body of a method."""
    _BODY("body", document)
    _check_documents("body", document, document.get("documents", [{"document": document.get("document")}]))
    if "frequencies" not in (*document, *document.get("vectors", ())):
        raise _wrong("body", sorted(document)[:20], "the frequencies, or their chunks")
    for answer in document["queries"]:
        if (answer["frequency"] is None) != (answer.get(KNOWN) == 0):
            raise _wrong("body.queries", answer, "null for the frequency if known is 0")
    for most in document["top"]:
        if {len(most[name]) for name in ("frequencies", *BASE_ONLY) if name in most} != {len(most["values"])}:
            raise _wrong("body.top", most, "as many numbers as values")
