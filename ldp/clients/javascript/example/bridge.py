"""A bridge from web pages to Kafka: each request body becomes one record.

    python bridge.py DOCUMENT TOPIC [PORT]

LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS names the brokers; without it, they are at localhost:9092.
The bridge checks only the length of a body; workers check the content. It receives each sender's address and headers,
but neither stores nor forwards them.
"""

from __future__ import annotations

import os
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

from kafka import KafkaProducer
from kafka.errors import KafkaError

HERE = Path(__file__).resolve().parent
LARGEST = 1_000_000
"""Largest body in bytes. The client's frames are not larger, and fit into records under Kafka's default limits."""
KIND = "application/octet-stream"
"""Required content type. Pages of other sites need CORS to post it, so they cannot make visitors send reports."""


class Bridge(BaseHTTPRequestHandler):
    """Serves three files, and writes posted bodies to Kafka."""

    files: ClassVar[dict[str, tuple[str, Path]]] = {
        "/": ("text/html; charset=utf-8", HERE / "page.html"),
        "/ldp-client.js": ("text/javascript; charset=utf-8", HERE.parent / "ldp-client.js"),
    }
    producer: ClassVar[KafkaProducer]
    topic: ClassVar[str]
    timeout = 10  # seconds without data after which a sender's thread ends

    def do_GET(self) -> None:
        """Serves one of the files, or returns 404 for another path."""
        if self.path not in self.files:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        kind, path = self.files[self.path]
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(path.read_bytes())

    def do_POST(self) -> None:
        """Writes the body as a record; returns 204 once Kafka acknowledges it."""
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
        """Logs nothing, because a line would show the sender's address and time."""


class Server(ThreadingHTTPServer):
    """Handles each request in its own thread."""

    def handle_error(self, *_: object) -> None:
        """Suppresses the log of errors such as broken connections."""


def main(document: str, topic: str, port: str = "8000") -> None:
    """Serves on localhost until stopped."""
    Bridge.files["/document.json"] = ("application/json", Path(document))
    servers = os.environ.get("LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")
    Bridge.producer, Bridge.topic = KafkaProducer(bootstrap_servers=servers), topic
    with Server(("127.0.0.1", int(port)), Bridge) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)  # noqa: T201 - the page's address
        server.serve_forever()


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 4:
        sys.exit("usage: python bridge.py DOCUMENT TOPIC [PORT]")
    main(*sys.argv[1:])
