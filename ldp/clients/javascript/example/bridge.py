"""A bridge from pages to Kafka: what a page posts is the value of one record. The example's page comes from it, too.

    python bridge.py DOCUMENT TOPIC BOOTSTRAP [PORT]

It checks the length of a body and nothing in it: that is a worker's. It sees each sender's address and its browser's
headers, and neither keeps them nor passes them on.
"""

from __future__ import annotations

import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from kafka import KafkaProducer
from kafka.errors import KafkaError

HERE = Path(__file__).resolve().parent
LARGEST = 1_000_000
"""Bytes of a body: as long as the client packs, and what a record may have under Kafka's default limits."""
KIND = "application/octet-stream"
"""A page of another site has to ask before it posts this, and is not answered: its visitors are not made to report."""


class Bridge(BaseHTTPRequestHandler):
    """Serves three files, and passes on what is posted."""

    files: ClassVar[dict[str, tuple[str, Path]]] = {
        "/": ("text/html; charset=utf-8", HERE / "page.html"),
        "/ldp-client.js": ("text/javascript; charset=utf-8", HERE.parent / "ldp-client.js"),
    }
    producer: ClassVar[KafkaProducer]
    topic: ClassVar[str]
    timeout = 10  # seconds that a sender may be silent: each has a thread

    def do_GET(self) -> None:
        """One of the files; nothing else is here."""
        if self.path not in self.files:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, path = self.files[self.path]
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(path.read_bytes())

    def do_POST(self) -> None:
        """A body is the value of a record, which has neither key nor headers; 204 once Kafka has it."""
        length = self.headers.get("Content-Length", "")
        if self.path != "/reports" or self.headers.get("Content-Type") != KIND:
            status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        elif not (length.isascii() and length.isdecimal()):
            status = HTTPStatus.LENGTH_REQUIRED
        elif len(length) > len(str(LARGEST)) or int(length) > LARGEST:
            status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        else:
            status = self._passed_on(int(length))
        self.send_response(status)
        self.end_headers()

    def _passed_on(self, length: int) -> HTTPStatus:
        body = self.rfile.read(length)
        if len(body) < length:
            return HTTPStatus.BAD_REQUEST
        try:
            self.producer.send(self.topic, body).get(timeout=30)
        except KafkaError:
            return HTTPStatus.SERVICE_UNAVAILABLE
        return HTTPStatus.NO_CONTENT

    def log_message(self, *_: object) -> None:
        """Writes nothing: a line would keep the sender's address and the time."""


class Server(ThreadingHTTPServer):
    """Hands each request to a thread of its own."""

    def handle_error(self, *_: object) -> None:
        """Writes nothing of a connection that broke, either."""


def main(document: str, topic: str, bootstrap: str, port: str = "8000") -> None:
    """Serves on this machine alone until it is stopped."""
    Bridge.files["/document.json"] = ("application/json", Path(document))
    Bridge.producer, Bridge.topic = KafkaProducer(bootstrap_servers=bootstrap), topic
    with Server(("127.0.0.1", int(port)), Bridge) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201 - where it is
        server.serve_forever()


if __name__ == "__main__":
    if not 4 <= len(sys.argv) <= 5:
        sys.exit("python bridge.py DOCUMENT TOPIC BOOTSTRAP [PORT]")
    main(*sys.argv[1:])
