"""Answers requests for the page's files, snapshots and streams.

Any client of the port can read every answer. The answers contain only published snapshots and values that `/metrics`
also exports.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qs, unquote

from ldp import __version__
from ldp.intervals.score import Of
from ldp.snapshot import ALL_TIME, NewerSchema
from worker.http import documents
from worker.http.answers import Packed
from worker.http.files import pages
from worker.http.streams import Streams
from worker.kafka.snapshots.follower import Follower
from worker.kafka.snapshots.index import IndexEntry, Key, NotRead, NotThere

EVENTS = "/events"
STREAMS_SECONDS = 2.0
"""Minimum interval between events with changed streams."""
KEEP_ALIVE_SECONDS = 10.0
"""Time without events before a keep-alive event."""
MOST_WINDOWS = 200
"""Maximum number of windows of a name in an event with the streams."""
TURN_SECONDS = 0.5
"""Interval between checks for new events."""
_MOST_PARAMETERS = 64
_RESTRICTED = ("window", "start", "method")
_ASKED = {
    "snapshot": _RESTRICTED,
    "values.csv": (*_RESTRICTED, "of"),
    "excerpt": (*_RESTRICTED, "of", "top", "offset", "sort", "find"),
}
"""Allowed query parameters, by the form of the snapshot."""
_JSON, _CSV = "application/json", "text/csv; charset=utf-8"
_EPOCH = datetime.fromtimestamp(0, UTC)
T = TypeVar("T", bound=str)


@dataclass(frozen=True)
class DeferredBody:
    """A body that is made only if needed, and once for all clients."""

    key: object
    parts: Callable[[], Iterable[bytes]]
    kind: str


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; its body may be deferred."""

    status: HTTPStatus
    content_type: str
    body: Packed | DeferredBody
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(ValueError):  # noqa: N818  # an answer, not a fault
    """A refused request; the message names the given and the allowed values."""

    def __init__(self, why: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST, **details: Any) -> None:
        super().__init__(why)
        self.status, self.document = status, {"error": why} | details


class Page:
    """Answers requests from the page."""

    def __init__(
        self,
        streams: Streams,
        snapshots: Follower,
        names: Iterable[str],
        parts: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._streams, self._snapshots, self._names = streams, snapshots, list(names)
        self._parts, self._clock = frozenset(parts), clock

    def answer(self, target: str, known: str = "") -> Answer | None:
        """Returns the answer to a GET request; None for an unknown path.

        `known` is the value of the request's ``If-None-Match`` header.
        """
        try:
            path, query = _split(target)
            file = pages().get("index.html" if path == "/" else path.removeprefix("/page/"))
            if file is not None and (path == "/" or path.startswith("/page/")):
                return _unless_known(known, file.tag, file.content_type, file.content)
            if path == "/streams":
                return _json(HTTPStatus.OK, self._streams.document())
            match path.split("/"):
                case ["", "streams", stream, form] if form in _ASKED:
                    return self._snapshot(stream, form, query, known)
        except Refused as refused:
            return refusal(refused)
        return None

    def _snapshot(self, stream: str, form: str, query: Mapping[str, list[str]], known: str) -> Answer:
        _known_only(query, _ASKED[form])
        stream = unquote(stream)
        window, start = _one(query, "window", ALL_TIME.name), _start(query)
        self._check(stream, window, start)
        try:
            there = self._snapshots.find(stream, window, start)
            restriction = sorted((name, values) for name, values in query.items() if name != "start")
            asked = repr((__version__, form, restriction))  # versions may format the document differently
            tag = f"{there.identity}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
        except NotThere as error:
            raise self._missing(stream, window, start, unnamed=error.unnamed) from None
        except NotRead as error:
            raise _unread(error) from None

        rows, of = _rows(query), _among(query, "of", get_args(Of))

        def parts() -> Iterable[bytes]:
            try:
                snapshot = self._snapshots.read(stream, there)
            except (NotRead, NewerSchema) as error:
                raise _unread(error) from None
            if of == "population" and snapshot.is_population:
                raise Refused(f"of=population given; {stream} has several documents")
            methods = _methods(query, list(snapshot.bodies))
            if form == "snapshot":
                return documents.whole(snapshot, methods)
            if form == "values.csv":
                return documents.csv(snapshot, methods, of)
            return [documents.json(documents.excerpt(snapshot, methods, *rows, of))]

        body = DeferredBody((stream, tag), parts, form)
        if form == "values.csv":
            return _unless_known(known, tag, _CSV, body, _saved_as(stream, there))
        return _unless_known(known, tag, _JSON, body)

    def events(self, target: str) -> Iterator[bytes]:
        """Yields server-sent events, or empty bytes if there are none.

        The caller iterates every `TURN_SECONDS`. Events describe changed streams, and new and deleted snapshots. If the
        topic has not been read yet, all snapshots are new.

        Raises:
            Refused: the stream or a parameter is unknown.
        """
        _, query = _split(target)
        _known_only(query, ("stream", "window"))
        stream, window = _one(query, "stream", ""), _one(query, "window", "")
        if stream:
            self._check(stream, window or ALL_TIME.name, None)
        names = [stream] if stream else self._names
        # not in the generator: the client requests a snapshot next, and needs all events after this point
        seen = self._there(names, window) if self._snapshots.wait(0) else {}
        return self._events(names, window, seen, stream)

    def _there(self, names: list[str], window: str) -> dict[tuple[str, Key], IndexEntry]:
        """Returns the streams' snapshots; an empty `window` selects all windows."""
        return {
            (name, key): entry
            for name in names
            for key, entry in self._snapshots.newest(name).items()
            if entry.methods and window in ("", key[0])
        }

    def _events(
        self, names: list[str], window: str, seen: dict[tuple[str, Key], IndexEntry], part: str
    ) -> Iterator[bytes]:
        streams = self._streams.document(part)
        yield _event("streams", _brief(streams))
        sent_at = read_at = self._clock()
        while True:
            news = []
            if self._snapshots.wait(0):
                there = self._there(names, window)
                if self._snapshots.wait(0):  # while the topic is read again, `there` would be empty
                    news = [
                        _news("snapshot", *item)
                        for item in there.items()
                        if item[0] not in seen or seen[item[0]].identity != item[1].identity
                    ]
                    news += [_news("gone", *item) for item in seen.items() if item[0] not in there]
                    seen = there
            now = self._clock()
            if now - read_at >= STREAMS_SECONDS:
                read_at = now
                if (newer := self._streams.document(part)) != streams:
                    streams = newer
                    news.append(_event("streams", _brief(streams)))
            if not news and now - sent_at >= KEEP_ALIVE_SECONDS:
                news.append(_event("alive", {}))
            if news:
                sent_at = now
            yield b"".join(news)

    def _check(self, stream: str, window: str, start: int | None) -> None:
        """Raises `Refused` for an unknown stream, or a start without a window."""
        if stream not in self._names and stream not in self._parts:
            there = ", ".join(self._names)
            raise Refused(
                f"stream {_short(stream)} given; the streams are {there}", HTTPStatus.NOT_FOUND, windows=[]
            )
        if start is not None and window == ALL_TIME.name:
            raise Refused("start given; only a window has a start, not all time")

    def _missing(self, stream: str, window: str, start: int | None, *, unnamed: bool) -> Refused:
        there = sorted({key[0] for key, entry in self._snapshots.newest(stream).items() if entry.methods})
        what = (
            f"no snapshot of {stream}"
            if window == ALL_TIME.name
            else f"no window {_short(window)} of {stream}"
        )
        when = "" if start is None else f" that starts at {start}"
        why = f"{what}{when} is on the topic"
        if unnamed:
            why += ", except for messages whose sequence number the stream's head does not name"
        return Refused(why, HTTPStatus.NOT_FOUND, windows=there, unnamed=unnamed)


def _split(target: str) -> tuple[str, dict[str, list[str]]]:
    """Splits a request target into a path and parameters."""
    # urlsplit would parse "//x" as a host
    path, _, query = target.partition("#")[0].partition("?")
    try:
        return path, parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise Refused(f"too many parameters given; {_MOST_PARAMETERS} are allowed") from None


def _known_only(query: Mapping[str, list[str]], names: tuple[str, ...]) -> None:
    for name in query:
        if name not in names:
            raise Refused(f"parameter {_short(name)} given; allowed are {', '.join(names)}")


def _news(event: str, which: tuple[str, Key], entry: IndexEntry) -> bytes:
    names = ("sequence", "snapshot", "published", "window", "reports")
    facts = {name: entry.fields[name] for name in names if name in entry.fields}
    return _event(event, {"stream": which[0]} | facts)


def _brief(document: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Limits each stream's windows to the newest `MOST_WINDOWS`."""
    return [
        stream
        | ({"part": _newest(stream["part"])} if "part" in stream else {})
        | _newest({"available": stream["available"]})
        for stream in document
    ]


def _newest(listed: dict[str, Any]) -> dict[str, Any]:
    return listed | {"available": {name: some[-MOST_WINDOWS:] for name, some in listed["available"].items()}}


def _event(name: str, document: object) -> bytes:
    return f"event: {name}\ndata: ".encode() + documents.json(document) + b"\n\n"


def _json(status: HTTPStatus, document: object, headers: Mapping[str, str] | None = None) -> Answer:
    body = Packed.of(documents.json(document))
    return Answer(status, _JSON, body, {"Cache-Control": "no-store"} | dict(headers or {}))


def refusal(refused: Refused) -> Answer:
    """Returns the answer to a refused request."""
    later = {"Retry-After": "1"} if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return _json(refused.status, refused.document, later)


def _unread(error: Exception) -> Refused:
    return Refused(f"the snapshot topic: {error}", HTTPStatus.SERVICE_UNAVAILABLE)


def _unless_known(
    known: str,
    tag: str,
    content_type: str,
    body: Packed | DeferredBody,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Answer:
    headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache", **more}
    tags = {one.strip().removeprefix("W/").strip('"').removesuffix("-gzip") for one in known.split(",")}
    if tag in tags or "*" in tags:
        return Answer(HTTPStatus.NOT_MODIFIED, content_type, Packed.of(), headers)
    return Answer(HTTPStatus.OK, content_type, body, headers)


def _saved_as(stream: str, there: IndexEntry) -> dict[str, str]:
    """Returns the header that names a file of values."""
    window, number = there.window, there.fields["sequence"]
    parts = [stream, *([] if window == ALL_TIME else window.place.split("/")), number]
    name = "-".join(re.sub(r"[^\w.]", "_", str(part), flags=re.ASCII) for part in parts)
    return {"Content-Disposition": f'attachment; filename="{name}.csv"'}


def _short(given: str) -> str:
    return repr(given if len(given) <= 100 else given[:100] + "…")


def _one(query: Mapping[str, list[str]], name: str, default: str) -> str:
    return query.get(name, [default])[-1]


def _start(query: Mapping[str, list[str]]) -> int | None:
    """Parses a window's start in milliseconds or ISO 8601 (default: UTC)."""
    given = _one(query, "start", "")
    if not given:
        return None
    if given.isascii() and given.isdecimal() and len(given) <= 16:
        return int(given)
    try:
        date = datetime.fromisoformat(given)
    except ValueError:
        raise Refused(
            f"start {_short(given)} given; write a time like 2026-11-22T06:00Z, or milliseconds"
        ) from None
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _methods(query: Mapping[str, list[str]], published: list[str]) -> list[str]:
    """Returns the requested methods, by default all published ones."""
    given = list(dict.fromkeys(query.get("method", published)))
    for method in given:
        if method not in published:
            raise Refused(f"method {_short(method)} given; published: {', '.join(published)}")
    return given


def _rows(query: Mapping[str, list[str]]) -> tuple[int, int, str, str]:
    """Parses the parameters `top`, `offset`, `sort` and `find`."""
    top, offset = _whole(query, "top", 50, 1, documents.MOST_ROWS), _whole(query, "offset", 0, 0, 1 << 40)
    return top, offset, _among(query, "sort", ("base", "value")), _one(query, "find", "")


def _among(query: Mapping[str, list[str]], name: str, allowed: tuple[T, ...]) -> T:
    """Returns a parameter with two allowed values; the first is the default."""
    given = _one(query, name, allowed[0])
    for one in allowed:
        if one == given:
            return one
    raise Refused(f"{name} {_short(given)} given; {' and '.join(allowed)} are allowed")


def _whole(query: Mapping[str, list[str]], name: str, default: int, least: int, most: int) -> int:
    given = _one(query, name, str(default))
    if given.isascii() and given.isdecimal() and len(given) < 16 and least <= int(given) <= most:
        return int(given)
    raise Refused(f"{name} {_short(given)} given; {least} to {most} are allowed")
