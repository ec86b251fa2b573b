"""The page: what is answered to it, its own files first, then what the snapshot topic and this worker's metrics say.

It only reads. Who may reach the port may see all of it: it shows what is published, and what `/metrics` says.
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
"""How often the streams are said anew to whoever hears events, if they changed."""
KEEP_ALIVE_SECONDS = 10.0
"""How long nothing happens before that is said, so that who hears it knows that somebody is there."""
MOST_WINDOWS = 200
"""Of each name, the newest, that the streams are said with to whoever hears events."""
TURN_SECONDS = 0.5
"""How often it is looked what happened."""
_MOST_PARAMETERS = 64
_RESTRICTED = ("window", "start", "method")
_ASKED = {"snapshot": _RESTRICTED, "excerpt": (*_RESTRICTED, "top", "offset", "sort", "find")}
"""What may be asked of a snapshot, by the form that it is wanted in."""
_JSON = "application/json"
_EPOCH = datetime.fromtimestamp(0, UTC)


class Snapshots(Protocol):
    """The snapshots on their topic: `worker.kafka.snapshots.follower.Follower`."""

    def newest(self, stream: str) -> Mapping[Key, IndexEntry]:
        """Returns the windows of a stream that are on the topic, with that of all time."""

    def wait(self, seconds: float) -> bool:
        """Waits until something changed; returns whether the topic was read to its end."""

    def find(self, stream: str, window: str = ..., start: int | None = ...) -> IndexEntry:
        """Returns where a snapshot stands."""

    def read(self, stream: str, entry: IndexEntry) -> Snapshot:
        """Returns a snapshot, read from there."""


@dataclass(frozen=True)
class Question:
    """What costs to answer, so that it is answered once for all who ask.

    Attributes:
        key: what no other answer has.
        parts: yields the answer; raises `Refused`.
        kind: what is asked for, by the last name of the path.
    """

    key: object
    parts: Callable[[], Iterable[bytes]]
    kind: str


@dataclass(frozen=True)
class Answer:
    """What is answered: a status, and a body that is there or is still to be made."""

    status: HTTPStatus
    content_type: str
    body: Packed | Question
    headers: Mapping[str, str] = field(default_factory=dict)


class Refused(ValueError):  # noqa: N818  # an answer, not a fault
    """What was asked cannot be answered: it names what was given, and what is allowed."""

    def __init__(self, status: HTTPStatus, why: str, **more: Any) -> None:
        super().__init__(why)
        self.status, self.said = status, {"error": why} | more


class Page:
    """Answers the page.

    Args:
        streams: what is said of the streams.
        snapshots: what is on the snapshot topic.
        names: of the streams.
        clock: seconds.
    """

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
        """Returns the answer to a GET; None if it is none of the page's.

        Args:
            target: path and query, as they were sent.
            known: the tags of what the other side has, as ``If-None-Match`` says them.
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
        """Returns a snapshot, entry or an excerpt."""
        _known_only(query, _ASKED[form])
        stream = unquote(stream)
        window, start = _one(query, "window", ALL_TIME.name), _start(query)
        self._check(stream, window, start)
        try:
            there = self._snapshots.find(stream, window, start)
            restriction = sorted((name, values) for name, values in query.items() if name != "start")
            asked = repr((__version__, form, restriction))  # another version may write it otherwise
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
        """Yields what happens from now on, as server-sent events; nothing at a turn at which nothing did.

        A turn is to be taken every `TURN_SECONDS`. Of snapshots it says what is new and what is gone; where the topic
        is not read yet all that is there is new.

        Args:
            target: path and query, as they were sent.

        Raises:
            Refused: there is no such stream, or the question is none.
        """
        _, query = _split(target)
        _known_only(query, ("stream", "window"))
        stream, window = _one(query, "stream", ""), _one(query, "window", "")
        if stream:
            self._check(stream, window or ALL_TIME.name, None)
        names = [stream] if stream else self._names
        # now, not when the first is sent: who is answered asks for a snapshot, and must hear of what comes after that
        seen = self._there(names, window) if self._snapshots.wait(0) else {}
        return self._events(names, window, seen)

    def _there(self, names: list[str], window: str) -> dict[tuple[str, Key], IndexEntry]:
        """Returns the snapshots of streams and of windows of one name, or of all, that are on the topic."""
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
                if self._snapshots.wait(0):  # it is not being read anew, of which nothing would be there
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
        """Sees that a stream is one of ours, and that what is asked for can be."""
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
    """Returns the path and the parameters of what is asked for; two slashes name no host here."""
    path, _, query = target.partition("#")[0].partition("?")
    try:
        return path, parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
    except ValueError:
        raise Refused(
            HTTPStatus.BAD_REQUEST, f"too many parameters given; {_MOST_PARAMETERS} are allowed"
        ) from None


def _known_only(query: Mapping[str, list[str]], names: tuple[str, ...]) -> None:
    """Sees that no parameter is given that would be passed over."""
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
    """Returns what is said of the streams, with no more windows of a name than a page draws: thousands may be kept."""
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
    """Returns the answer that says why there is none."""
    later = {"Retry-After": "1"} if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
    return _json(refused.status, refused.said, later)


def _unread(error: Exception) -> Refused:
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"the snapshot topic: {error}")


def _knows(known: str, tag: str) -> bool:
    """Returns whether the other side has what a tag stands for, compressed or not."""
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
    """Reads the start of a window: milliseconds, or a time, in UTC where it has no zone."""
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
    """Returns the methods that are asked for, each once; all that are published where none is named."""
    given = list(dict.fromkeys(query.get("method", published)))
    for method in given:
        if method not in published:
            raise Refused(
                HTTPStatus.BAD_REQUEST, f"method {_short(method)} given; published are {', '.join(published)}"
            )
    return given


def _rows(query: Mapping[str, list[str]]) -> tuple[int, int, str, str]:
    """Returns which values are asked for."""
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
