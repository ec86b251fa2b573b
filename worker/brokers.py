"""The way to the brokers: says whom it waits for, and gives up with the reason, which the client only logs."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaTimeoutError

from worker.config import Config

PATIENCE = 10.0
"""Seconds that brokers have to answer, unless somebody asks to wait longer."""
ADVICE = "start the brokers, or correct kafka.bootstrap_servers and the security settings beside it"

_NOTICE_SECONDS = 1.0


class Unreachable(RuntimeError):  # noqa: N818  # named for what happened, as its message is read
    """No broker let the client in, in all the time that it had."""


def connect(
    config: Config, wait_seconds: float = PATIENCE, waiting: Callable[[str], object] = lambda _: None
) -> KafkaAdminClient:
    """Connects to the cluster's administration.

    Args:
        config: where the brokers are.
        wait_seconds: how long to try.
        waiting: told once whom it waits for and why, if that takes more than a second; on another thread.

    Raises:
        Unreachable: no broker let the client in, in that time.
    """
    names = ", ".join(config.kafka.bootstrap_servers)
    with _listening() as reason:
        notice = threading.Timer(
            _NOTICE_SECONDS,
            lambda: waiting(f"no answer from {names} yet{reason}; trying for {wait_seconds:g} s"),
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
            raise Unreachable(f"no answer from {names} in {wait_seconds:g} s{reason}") from None
        finally:
            notice.cancel()


class _Reason(logging.Handler):
    """Keeps why the client failed to connect the last time."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            # that time is up is no reason
            if isinstance(argument, Exception) and not isinstance(argument, KafkaTimeoutError):
                self._last = f" ({str(argument).removeprefix('KafkaConnectionError: ')})"

    def __str__(self) -> str:
        return self._last


@contextmanager
def _listening() -> Iterator[_Reason]:
    """Hears what the client logs of its connections, whatever else is heard of it."""
    logger, reason = logging.getLogger("kafka.net.manager"), _Reason()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(reason)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield reason
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
        logger.removeHandler(reason)
