"""Asks a process of this machine what `worker.http.server` says there."""

import contextlib
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Answer:
    """What a process answered."""

    status: int
    text: str


def ask(port: int, path: str, accept: str, seconds: float) -> Answer | None:
    """Returns what a process answers; None if it does not, or is silent for that long.

    Args:
        port: where it listens on this machine.
        path: such as ``/healthz``.
        accept: the form that is asked for, a content type.
        seconds: how long it may be silent.
    """
    # not by urllib, which would ask a proxy that the environment names
    with contextlib.closing(HTTPConnection(HOST, port, timeout=seconds)) as connection:
        try:
            connection.request("GET", path, headers={"Accept": accept})
            reply = connection.getresponse()
            return Answer(reply.status, reply.read().decode())
        except (OSError, HTTPException):
            return None
