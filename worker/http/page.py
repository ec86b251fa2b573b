"""Answers of the page: its files, snapshots and metrics; read-only.

Every client of the port can see all of it: published snapshots, and the facts of `/metrics`.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

from ldp import __version__
from ldp.snapshot import ALL_TIME, NewerSchema, Snapshot
from worker.http import documents
from worker.http.answers import Packed
from worker.http.files import pages
from worker.http.streams import Streams
from worker.kafka.snapshots.index import IndexEntry, Key, NotRead, NotThere

EVENTS = "/events"
STREAMS_SECONDS = 2.0
"""Minimum interval of events with changed streams."""
KEEP_ALIVE_SECONDS = 10.0
"""Silence before an event that keeps the connection alive."""
MOST_WINDOWS = 200
"""Newest windows of each name in an event with the streams."""
TURN_SECONDS = 0.5
"""Interval of looking for new events."""
_MOST_PARAMETERS = 64
_RESTRICTED = ("window", "start", "method")
_ASKED = {"snapshot": _RESTRICTED, "excerpt": (*_RESTRICTED, "top", "offset", "sort", "find")}
"""Parameters of a snapshot, by its form."""
_JSON = "application/json"
_EPOCH = datetime.fromtimestamp(0, UTC)


class Snapshots(Protocol):
    """Reads the snapshot topic: `worker.kafka.snapshots.follower.Follower`."""

    def newest(self, stream: str) -> Mapping[Key, IndexEntry]:
        """Returns the windows of a stream on the topic, with all time."""

    def wait(self, seconds: float) -> bool:
        """Waits for a change; returns whether the topic was read to its end."""

    def find(self, stream: str, window: str = ..., start: int | None = ...) -> IndexEntry:
        """Returns the index entry of a snapshot."""

    def read(self, stream: str, entry: IndexEntry) -> Snapshot:
        """Reads a snapshot."""


@dataclass(frozen=True)
class Question:
    """An expensive answer, made once for all clients."""

    key: object
    parts: Callable[[], Iterable[bytes]]
    kind: str


@dataclass(frozen=True)
class Answer:
    """A status, and a body or the question that makes it."""

    status: HTTPStatus
    content_type: str
    body: Packed | Question
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(ValueError):  # noqa: N818  # an answer, not a fault
    """A refused request; names the given and the allowed values."""

    def __init__(self, status: HTTPStatus, why: str, **more: Any) -> None:
        super().__init__(why)
        self.status, self.said = status, {"error": why} | more


class Page:
    """Answers requests of the page."""

    def __init__(
        self,
        streams: Streams,
        snapshots: Snapshots,
        names: Iterable[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._streams, self._snapshots, self._names = streams, snapshots, list(names)
        self._clock = clock

    def answer(self, target: str, known: str = "") -> Answer | None:
        """Returns the answer to a GET with the client's known tags; None for another path."""
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
            asked = repr((__version__, form, restriction))  # another version may write another document
            tag = f"{there.identity}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
        except NotThere as error:
            raise self._missing(stream, window, start, unnamed=error.unnamed) from None
        except NotRead as error:
            raise _unread(error) from None

        rows = _rows(query)

        def parts() -> Iterable[bytes]:
            try:
                snapshot = self._snapshots.read(stream, there)
            except (NotRead, NewerSchema) as error:
                raise _unread(error) from None
            methods = _methods(query, list(snapshot.bodies))
            if form == "snapshot":
                return documents.whole(snapshot, methods)
            return [documents.json(documents.excerpt(snapshot, methods, *rows))]

        return _unless_known(known, tag, _JSON, Question((stream, tag), parts, form))

    def events(self, target: str) -> Iterator[bytes]:
        """Yields server-sent events; empty bytes for a turn without news.

        The caller takes a turn every `TURN_SECONDS`. Events name new and deleted snapshots; if the topic has not been
        read yet, all snapshots are new.

        Raises:
            Refused: there is no such stream or parameter.
        """
        _, query = _split(target)
        _known_only(query, ("stream", "window"))
        stream, window = _one(query, "stream", ""), _one(query, "window", "")
        if stream:
            self._check(stream, window or ALL_TIME.name, None)
        names = [stream] if stream else self._names
        # now, not with the first event: the client asks for a snapshot, and needs all events after that
        seen = self._there(names, window) if self._snapshots.wait(0) else {}
        return self._events(names, window, seen)

    def _there(self, names: list[str], window: str) -> dict[tuple[str, Key], IndexEntry]:
        """Returns the snapshots on the topic, of windows of one name or of all."""
        return {
            (name, key): entry
            for name in names
            for key, entry in self._snapshots.newest(name).items()
            if entry.methods and window in ("", key[0])
        }

    def _events(
        self, names: list[str], window: str, seen: dict[tuple[str, Key], IndexEntry]
    ) -> Iterator[bytes]:
        said = self._streams.document()
        yield _event("streams", _brief(said))
        spoke = looked = self._clock()
        while True:
            news = []
            if self._snapshots.wait(0):
                there = self._there(names, window)
                if self._snapshots.wait(0):  # during a new read of the topic it would be empty
                    news = [
                        _news("snapshot", *item)
                        for item in there.items()
                        if item[0] not in seen or seen[item[0]].identity != item[1].identity
                    ]
                    news += [_news("gone", *item) for item in seen.items() if item[0] not in there]
                    seen = there
            now = self._clock()
            if now - looked >= STREAMS_SECONDS:
                looked = now
                if (newer := self._streams.document()) != said:
                    said = newer
                    news.append(_event("streams", _brief(said)))
            if not news and now - spoke >= KEEP_ALIVE_SECONDS:
                news.append(_event("alive", {}))
            if news:
                spoke = now
            yield b"".join(news)

    def _check(self, stream: str, window: str, start: int | None) -> None:
        """Refuses unknown streams, and a start of all time."""
        if stream not in self._names:
            there = ", ".join(self._names)
            raise Refused(
                HTTPStatus.NOT_FOUND, f"stream {_short(stream)} given; there are {there}", windows=[]
            )
        if start is not None and window == ALL_TIME.name:
            raise Refused(HTTPStatus.BAD_REQUEST, "start given; all time has no start, a window has")

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
            why += ", but messages of one that the stream's head does not name, with their number"
        return Refused(HTTPStatus.NOT_FOUND, why, windows=there, unnamed=unnamed)


def _split(target: str) -> tuple[str, dict[str, list[str]]]:
    """Splits a target into path and parameters; two slashes name no host."""
    path, _, query = target.partition("#")[0].partition("?")
    try:
        return path, parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"too many parameters given; {_MOST_PARAMETERS} are allowed"
        ) from None


def _known_only(query: Mapping[str, list[str]], names: tuple[str, ...]) -> None:
    for name in query:
        if name not in names:
            raise Refused(
                HTTPStatus.BAD_REQUEST, f"parameter {_short(name)} given; there are {', '.join(names)}"
            )


def _news(event: str, which: tuple[str, Key], entry: IndexEntry) -> bytes:
    names = ("sequence", "snapshot", "window", "reports")
    said = {name: entry.said[name] for name in names if name in entry.said}
    return _event(event, {"stream": which[0]} | said)


def _brief(document: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the streams with the newest windows only; thousands may be kept."""
    return [
        stream | {"available": {name: some[-MOST_WINDOWS:] for name, some in stream["available"].items()}}
        for stream in document
    ]


def _event(name: str, document: object) -> bytes:
    return f"event: {name}\ndata: ".encode() + documents.json(document) + b"\n\n"


def _json(status: HTTPStatus, document: object, headers: Mapping[str, str] | None = None) -> Answer:
    said = Packed.of(documents.json(document))
    return Answer(status, _JSON, said, {"Cache-Control": "no-store"} | dict(headers or {}))


def refusal(refused: Refused) -> Answer:
    """Returns the answer to a refused request."""
    later = {"Retry-After": "1"} if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return _json(refused.status, refused.said, later)


def _unread(error: Exception) -> Refused:
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"the snapshot topic: {error}")


def _knows(known: str, tag: str) -> bool:
    tags = {one.strip().removeprefix("W/").strip('"').removesuffix("-gzip") for one in known.split(",")}
    return tag in tags or "*" in tags


def _unless_known(known: str, tag: str, content_type: str, body: Packed | Question) -> Answer:
    headers = {"ETag": f'"{tag}"', "Cache-Control": "no-cache"}
    if _knows(known, tag):
        return Answer(HTTPStatus.NOT_MODIFIED, content_type, Packed.of(), headers)
    return Answer(HTTPStatus.OK, content_type, body, headers)


def _short(given: str) -> str:
    return repr(given if len(given) <= 100 else given[:100] + "…")


def _one(query: Mapping[str, list[str]], name: str, default: str) -> str:
    return query.get(name, [default])[-1]


def _start(query: Mapping[str, list[str]]) -> int | None:
    """Parses the start of a window: milliseconds, or a time, by default in UTC."""
    given = _one(query, "start", "")
    if not given:
        return None
    if given.isascii() and given.isdecimal() and len(given) <= 16:
        return int(given)
    try:
        date = datetime.fromisoformat(given)
    except ValueError:
        raise Refused(
            HTTPStatus.BAD_REQUEST,
            f"start {_short(given)} given; a time is like 2026-11-22T06:00Z, or milliseconds",
        ) from None
    return ((date if date.tzinfo else date.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def _methods(query: Mapping[str, list[str]], published: list[str]) -> list[str]:
    """Returns the requested methods, by default all published ones."""
    given = list(dict.fromkeys(query.get("method", published)))
    for method in given:
        if method not in published:
            raise Refused(
                HTTPStatus.BAD_REQUEST, f"method {_short(method)} given; published are {', '.join(published)}"
            )
    return given


def _rows(query: Mapping[str, list[str]]) -> tuple[int, int, str, str]:
    """Returns the requested range, order and search of values."""
    top, offset = _whole(query, "top", 50, 1, documents.MOST_ROWS), _whole(query, "offset", 0, 0, 1 << 40)
    sort = _one(query, "sort", "base")
    if sort not in ("base", "value"):
        raise Refused(HTTPStatus.BAD_REQUEST, f"sort {_short(sort)} given; base and value are allowed")
    return top, offset, sort, _one(query, "find", "")


def _whole(query: Mapping[str, list[str]], name: str, default: int, least: int, most: int) -> int:
    given = _one(query, name, str(default))
    if given.isascii() and given.isdecimal() and len(given) < 16 and least <= int(given) <= most:
        return int(given)
    raise Refused(HTTPStatus.BAD_REQUEST, f"{name} {_short(given)} given; {least} to {most} are allowed")
