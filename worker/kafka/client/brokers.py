"""The way to the brokers: says whom it waits for, and gives up with the reason, which the client only logs."""

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

TIMEOUT_SECONDS = 10.0
"""Seconds that brokers have to answer, unless somebody asks to wait longer."""

_NOTICE_SECONDS = 1.0


class Unreachable(RuntimeError):  # noqa: N818  # named for what happened, as its message is read
    """No broker let the client in, in all the time that it had.

    Attributes:
        advice: what to do about it.
    """

    def __init__(self, text: str, advice: str = START) -> None:
        super().__init__(text)
        self.advice = advice


def connect(
    config: Config,
    wait_seconds: float = TIMEOUT_SECONDS,
    on_waiting: Callable[[str], object] = lambda _: None,
) -> KafkaAdminClient:
    """Connects to the cluster's administration.

    Args:
        config: where the brokers are.
        wait_seconds: how long to try.
        on_waiting: told once whom it waits for and why, if that takes more than a second; on another thread.

    Raises:
        Unreachable: no broker let the client in, in that time and one TLS handshake's at most.
    """
    names = ", ".join(config.kafka.bootstrap_servers)
    with _quiet(), listening() as reason:
        notice = threading.Timer(
            _NOTICE_SECONDS,
            lambda: on_waiting(f"{reason.outcome} {names} yet{reason}; trying for {wait_seconds:g} s"),
        )
        notice.daemon = True
        notice.start()
        try:
            return KafkaAdminClient(
                **config.kafka.client(),
                client_id="ldp-worker-admin",
                bootstrap_timeout_ms=int(1000 * wait_seconds),
            )
        except KafkaTimeoutError:
            text = f"{reason.outcome} {names} in {wait_seconds:g} s{reason}"
            raise Unreachable(text, reason.advice) from None
        finally:
            notice.cancel()


class ConnectionReason(logging.Handler):
    """Keeps why the client failed to connect the last time, as it logs it; its text stands behind other text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Notes a reason; that time was up is one only where nothing else happened before."""
        if (why := quirks.why_not_connected(record)) is None:
            return
        if not self._last or not re.search("timed ?out", why, re.IGNORECASE):
            self._last = re.sub(r"^\[Error \d+\] | \(_ssl\.c:\d+\)", "", why)

    def __str__(self) -> str:
        return f" ({self._last})" if self._last else ""

    @property
    def advice(self) -> str:
        """What to do about it."""
        return remedy(self._last)

    @property
    def outcome(self) -> str:
        """How it ended, with an address behind it: nobody answered, or somebody did and refused."""
        return "no answer from" if self.advice == START else "not let in by"


@contextmanager
def listening() -> Iterator[ConnectionReason]:
    """Hears what the client logs of its connections."""
    reason = ConnectionReason()
    quirks.CONNECTIONS.addHandler(reason)
    try:
        yield reason
    finally:
        quirks.CONNECTIONS.removeHandler(reason)


@contextmanager
def _quiet() -> Iterator[None]:
    """Has the client log its connections to `listening` alone, whatever else is heard of it."""
    logger = quirks.CONNECTIONS
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
