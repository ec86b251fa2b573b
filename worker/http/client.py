"""HTTP client for worker processes on this machine."""

import contextlib
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """HTTP answer of a worker process."""

    status: int
    text: str


def ask(port: int, path: str, accept: str, seconds: float) -> Answer | None:
    """Returns the answer of a process; None if the request fails or times out."""
    # urllib would use a proxy from the environment
    with contextlib.closing(HTTPConnection(HOST, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path, headers={"Accept": accept})
            reply = connection.getresponse()
            return Answer(reply.status, reply.read().decode())
        except (OSError, HTTPException):
            return None
