"""HTTP client for the processes of this machine."""

import contextlib
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """A process's answer."""

    status: int
    text: str


def ask(port: int, path: str, accept: str, seconds: float) -> Answer | None:
    """Returns a process's answer; None if it fails or times out."""
    # not urllib, which would use a proxy of the environment
    with contextlib.closing(HTTPConnection(HOST, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path, headers={"Accept": accept})
            reply = connection.getresponse()
            return Answer(reply.status, reply.read().decode())
        except (OSError, HTTPException):
            return None
