"""Logs: structured, one line an event, to stderr: JSON for machines, readable where stderr is a terminal."""

import io
import logging
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import structlog

from ldp.terminal import printable, printable_json

_CONNECTIONS = "kafka.net"
"""Whose loggers say the same of each try to connect, several times a second."""
_PAUSE_SECONDS = 10.0
_OWN = ("worker", "ldp")
"""The loggers of this package."""


def configure(level: str = "info", process: int | None = None) -> None:
    """Routes structlog and the standard library's logging to stderr; time is UTC, RFC 3339, or of the day for people.

    The libraries' own loggers, kafka-python's above all, are heard from WARNING on; at debug, from INFO on. What
    they say of connections is thinned, but at debug: the worker itself says why none comes about and what to do.

    Args:
        level: from which on the worker's own loggers are heard: debug, info, warning or error.
        process: which of several this one is; each line says it.
    """

    def number(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return event if process is None else {"process": process, **event}

    readable = sys.stderr.isatty()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if readable else "iso", utc=True, key="time"),
        number,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderer(readable)],
        )
    )
    if level != "debug":
        handler.addFilter(_Thinned())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if level == "debug" else logging.WARNING)
    for name in _OWN:
        logging.getLogger(name).setLevel(level.upper())
    # say about a missing topic, ten times a second, what the worker says once in a while; the second, which assigns
    # partitions, says it also of a topic that its client has only not heard of yet
    # the third warns of each tenth of a second that a worker is busy
    for name in (
        "kafka.cluster",
        "kafka.coordinator.assignors.sticky.sticky_assignor",
        "kafka.net.selector",
    ):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.captureWarnings(True)


class _Thinned(logging.Filter):
    """Lets one line of each logger of the connections pass, and no other for `_PAUSE_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._heard: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a line is heard."""
        if not record.name.startswith(f"{_CONNECTIONS}."):
            return True
        now = self._clock()
        if now - self._heard.get(record.name, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            return False
        self._heard[record.name] = now
        return True


def _renderer(readable: bool) -> list[structlog.typing.Processor]:
    """Returns what writes an event: for people, or in JSON."""
    if not readable:
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
            _printable_line,
        ]
    return [
        _without_own_name,
        _printable,
        structlog.dev.ConsoleRenderer(
            timestamp_key="time",
            sort_keys=False,
            pad_event=18,
            pad_level=False,
            # rich would print every local variable beside the traceback, passwords included
            exception_formatter=_traceback,
        ),
    ]


def _printable_line(_: object, __: str, line: Any) -> str:
    """Escapes what clients, brokers and records have put into a line of JSON, which says the same."""
    return printable_json(line)


def _printable(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escapes what clients, brokers and records have put into an event; other values are shown by their repr."""
    return {name: printable(fact) if isinstance(fact, str) else fact for name, fact in event.items()}


def _traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Writes a traceback, whose messages may quote records."""
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, error)
    out.write(printable(plain.getvalue(), lines=True))


def _without_own_name(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Leaves the worker's own name out where there is little room."""
    if str(event.get("logger")).partition(".")[0] in _OWN:
        del event["logger"]
    return event


def silence() -> None:
    """Keeps the libraries quiet in a command that itself says what goes wrong."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
