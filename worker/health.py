"""What the worker says over HTTP: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz`` for probes."""

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

Facts = Mapping[str, object]
Answer = Callable[[], tuple[bool, Facts]]


def serve(
    host: str, port: int, registry: CollectorRegistry, healthy: Answer, ready: Answer
) -> ThreadingHTTPServer:
    """Answers on a thread of its own until `shutdown` is called on what it returns.

    Args:
        host: the address to listen at.
        port: the port; 0 takes a free one, see ``server_port`` of what is returned.
        registry: the metrics.
        healthy: whether the process lives as it should, and facts to show; false asks a supervisor to restart it.
        ready: whether every stream is served, and facts to show.

    Raises:
        OSError: the port is taken.
    """
    answers = {"/healthz": healthy, "/readyz": ready}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                encode, content_type = choose_encoder(self.headers.get("Accept", ""))
                self._send(HTTPStatus.OK, content_type, encode(registry))
            elif self.path in answers:
                good, facts = answers[self.path]()
                status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
                self._send(status, "application/json", json.dumps(facts).encode() + b"\n")
            else:
                known = ", ".join(["/metrics", *answers])
                self._send(
                    HTTPStatus.NOT_FOUND, "text/plain", f"{self.path} is not here; {known} are\n".encode()
                )

        def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing: probes come every few seconds."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server
