"""A fake HTTP server of a worker for tests of the page."""

import json
import queue
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self, cast

PAGE = Path(__file__).parents[3] / "worker" / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Document = dict[str, Any]


@dataclass
class Shown:
    """A snapshot; `ends` are Base's vectors, `said` further fields of the excerpt."""

    methods: Mapping[str, Sequence[float]]
    labels: Sequence[str] | None = None
    ends: Mapping[str, Sequence[float]] = field(default_factory=dict)
    said: Document = field(default_factory=dict)
    queries: list[Document] = field(default_factory=list)
    top: list[Document] = field(default_factory=list)

    def excerpt(self, asked: Mapping[str, str]) -> Document:
        """Returns the excerpt for a request's parameters."""
        first = next(iter(self.methods.values()))
        found = [
            v for v in range(len(first)) if asked.get("find", "").lower() in str(self._label(v) or v).lower()
        ]
        if asked.get("sort") != "value":
            found.sort(key=lambda value: (-first[value], value))
        offset = int(asked.get("offset", 0))
        return {
            "window": {"name": "all", "start": None, "end": None, "final": False},
            "sequence": 1,
            "snapshot": "0" * 32,
            "fingerprint": "0123abcd",
            "reports": 10_000,
            "complete": True,
            "gaps": {},
            "uncounted": [],
            "standard_error": 0.0123,
            "level": 0.95,
            "document": {"protocol": "olh", "epsilon": "1"},
            "domain_size": len(first),
            "of": asked.get("of", "reports"),
            "methods": list(self.methods),
            "sums": {method: sum(frequencies) for method, frequencies in self.methods.items()},
            "matching": len(found),
            "offset": offset,
            "values": [self._row(value) for value in found[offset : offset + int(asked["top"])]],
            "range": [min(map(min, self.methods.values())), max(map(max, self.methods.values()))],
            "queries": self.queries,
            "top": self.top,
        } | self.said

    def _label(self, value: int) -> str | None:
        return None if self.labels is None else self.labels[value]

    def _row(self, value: int) -> Document:
        ends = {name: vector[value] for name, vector in self.ends.items()}
        frequencies = {method: vector[value] for method, vector in self.methods.items()}
        return {"value": value, "label": self._label(value), "frequencies": frequencies} | ends


class Standin:
    """The server; a context manager."""

    def __init__(self, *names: str, port: int = 0) -> None:
        self.streams = [self.stream(name) for name in names]
        self.snapshots: dict[tuple[str, str, str], Shown] = {}  # by stream, window, start in ms or ""
        self.asked: list[str] = []
        # refuses event streams; answers 503; reports messages that the head does not name
        self.refusing, self.unread, self.unnamed = False, False, False
        self.now: float | None = None  # the time in the header Date, in seconds; by default the real time
        self._listeners: list[queue.Queue[bytes | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._server.daemon_threads = True
        self._server.standin = self  # type: ignore[attr-defined]
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}/"

    @staticmethod
    def stream(name: str, **said: Any) -> Document:
        """Returns a stream of /streams."""
        return {
            "name": name,
            "fingerprint": "0123abcd",
            "protocol": "olh",
            "epsilon": "1",
            "domain_size": 3,
            "topic": f"{name}-reports",
            "windows": ["all"],
            "every_seconds": 5.0,
            "published": 1_795_327_200_000,
            "state": "serving",
            "rate": 1234.5,
            "lag": 0,
            "rejected": {},
            "partitions": {"0": "here", "1": "elsewhere"},
            "accepted": 10_000,
            "newest": {"sequence": 1, "reports": 10_000, "complete": True, "standard_error": 0.0123},
            "available": {"all": [None]},
            "parts": [],
            "hidden": 0,
        } | said

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for listener in self._listeners:
            listener.put(None)

    def publish(self, shown: Shown, stream: str, window: str = "all", start: str = "") -> None:
        """Adds a snapshot and sends its event."""
        self.snapshots[stream, window, start] = shown
        said = shown.excerpt({"top": "1"})
        news = {key: said[key] for key in ("sequence", "snapshot", "reports", "window")}
        self._tell("snapshot", news | {"stream": stream})

    def remove(self, stream: str, window: str, start: str) -> None:
        """Removes a snapshot and sends its event."""
        said = self.snapshots.pop((stream, window, start)).excerpt({"top": "1"})
        self._tell(
            "gone",
            {key: said[key] for key in ("sequence", "snapshot", "reports", "window")} | {"stream": stream},
        )

    def alive(self) -> None:
        """Sends a keep-alive event."""
        self._tell("alive", {})

    def renew(self) -> None:
        """Sends the streams."""
        self._tell("streams", self.streams)

    def _tell(self, event: str, data: Any) -> None:
        for listener in self._listeners:
            listener.put(_event(event, data))

    def listen(self) -> "queue.Queue[bytes | None]":
        """Returns the events of a new listener."""
        listener: queue.Queue[bytes | None] = queue.Queue()
        listener.put(_event("streams", self.streams))
        self._listeners.append(listener)
        return listener


def _event(event: str, data: Any) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        standin = cast("Standin", self.server.standin)  # type: ignore[attr-defined]
        return super().date_time_string(standin.now if timestamp is None else timestamp)

    def do_GET(self) -> None:
        standin = cast("Standin", self.server.standin)  # type: ignore[attr-defined]
        standin.asked.append(self.path)
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        parts = [urllib.parse.unquote(part) for part in path.split("/")[1:]]
        match parts:
            case ["events"] if standin.refusing:
                self._answer(503, b"", "text/plain")
            case ["events"]:
                self._tell(standin)
            case ["streams"]:
                self._answer(200, json.dumps(standin.streams).encode(), "application/json")
            case ["streams", _, "excerpt"] if standin.unread:
                self._answer(
                    503, b'{"error": "the snapshot topic: not read to its end yet"}', "application/json"
                )
            case ["streams", name, "excerpt"]:
                shown = standin.snapshots.get((name, asked.get("window", "all"), asked.get("start", "")))
                missing = {"error": "no such window", "windows": ["all"], "unnamed": standin.unnamed}
                said = missing if shown is None else shown.excerpt(asked)
                body = json.dumps({"stream": name} | said).encode()
                self._answer(404 if shown is None else 200, body, "application/json")
            case [""] | ["page", _]:
                file = PAGE / (parts[-1] or "index.html")
                self._answer(200, file.read_bytes(), f"{KINDS[file.suffix]}; charset=utf-8")
            case _:
                self._answer(404, b"", "text/plain")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _tell(self, standin: Standin) -> None:
        listener = standin.listen()  # before the page receives the event
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            while (event := listener.get()) is not None:
                self.wfile.write(event)
        except OSError:
            pass
