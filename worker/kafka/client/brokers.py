"""Connects an admin client, and reports why the brokers do not answer."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaTimeoutError

from worker.config import Config
from worker.kafka.client import quirks
from worker.kafka.client.errors import START, remedy

TIMEOUT_SECONDS = 10.0  # Longest wait for the brokers

_NOTICE_SECONDS = 1.0


class Unreachable(RuntimeError):  # noqa: N818  # the name describes the outcome
    """No broker accepted the client in time."""

    def __init__(self, text: str, advice: str = START) -> None:
        super().__init__(text)
        self.advice = advice


def connect(config: Config, on_waiting: Callable[[str], object] = lambda _: None) -> KafkaAdminClient:
    """Connects an admin client.

    Raises `Unreachable`: no broker accepted the client within `TIMEOUT_SECONDS` plus the time of one TLS handshake.
    """
    quirks.mend_connections()
    names = ", ".join(config.kafka.bootstrap_servers)
    with _quiet(), listening() as reason:
        notice = threading.Timer(
            _NOTICE_SECONDS,
            lambda: on_waiting(f"{reason.outcome} {names} yet{reason}; trying for {TIMEOUT_SECONDS:g} s"),
        )
        notice.daemon = True
        notice.start()
        try:
            return KafkaAdminClient(
                **config.kafka.client(),
                client_id="ldp-worker-admin",
                bootstrap_timeout_ms=int(1000 * TIMEOUT_SECONDS),
            )
        except KafkaTimeoutError:
            text = f"{reason.outcome} {names} in {TIMEOUT_SECONDS:g} s{reason}"
            raise Unreachable(text, reason.advice) from None
        finally:
            notice.cancel()


class ConnectionReason(logging.Handler):
    """Log handler that keeps the reason for the last failed connection."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the record's reason; a time-out does not replace another reason."""
        if (why := quirks.why_not_connected(record)) is None:
            return
        if not self._last or not re.search("timed ?out", why, re.IGNORECASE):
            self._last = re.sub(r"^\[Error \d+\] | \(_ssl\.c:\d+\)", "", why)

    def __str__(self) -> str:
        return f" ({self._last})" if self._last else ""

    @property
    def advice(self) -> str:
        """The remedy for the kept reason."""
        return remedy(self._last)

    @property
    def outcome(self) -> str:
        """The beginning of an error message, up to the brokers' addresses."""
        return "no answer from" if self.advice == START else "rejected by"


@contextmanager
def listening() -> Iterator[ConnectionReason]:
    """Collects the reason for failed connections within the context."""
    reason = ConnectionReason()
    quirks.CONNECTIONS.addHandler(reason)
    try:
        yield reason
    finally:
        quirks.CONNECTIONS.removeHandler(reason)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the client's connection log, except from `listening`."""
    logger = quirks.CONNECTIONS
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
