"""Structured logs on stderr: JSON lines, or readable text on a terminal."""

import io
import logging
import sys
import time
from collections.abc import Callable
from typing import TextIO

import structlog

from ldp.terminal import printable, printable_json

_CONNECTIONS = "kafka.net"
"""Parent of the loggers that repeat a message for each connection attempt."""
_PAUSE_SECONDS = 10.0
_OWN = ("worker", "ldp")
"""The project's own loggers."""


def configure(level: str = "info", process: int | None = None) -> None:
    """Routes structlog and standard logging to stderr, with UTC times.

    Libraries log at WARNING and above, or at INFO and above if the level is debug. At other levels, repeated lines
    about connections are dropped, because the worker logs the cause.
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
    formatter = structlog.stdlib.ProcessorFormatter
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, formatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        formatter(
            foreign_pre_chain=[*shared, structlog.stdlib.PositionalArgumentsFormatter()],
            processors=[formatter.remove_processors_meta, *_renderer(readable)],
        )
    )
    if level != "debug":
        handler.addFilter(_Thinned())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if level == "debug" else logging.WARNING)
    for name in _OWN:
        logging.getLogger(name).setLevel(level.upper())
    # The first two repeat 10 times per second that a topic is missing, which the worker also logs.
    # The third warns whenever a worker is busy for 0.1 s.
    for name in ("cluster", "coordinator.assignors.sticky.sticky_assignor", "net.selector"):
        logging.getLogger(f"kafka.{name}").setLevel(logging.CRITICAL)
    logging.captureWarnings(True)


class _Thinned(logging.Filter):
    """Passes one line of each connection logger per `_PAUSE_SECONDS`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._passed_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a line passes."""
        if not record.name.startswith(f"{_CONNECTIONS}."):
            return True
        now = self._clock()
        if now - self._passed_at.get(record.name, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
            return False
        self._passed_at[record.name] = now
        return True


def _renderer(readable: bool) -> list[structlog.typing.Processor]:
    if not readable:
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False),
            lambda _, __, line: printable_json(str(line)),  # escapes control characters
        ]
    return [
        _without_own_name,
        _printable,
        structlog.dev.ConsoleRenderer(
            timestamp_key="time",
            sort_keys=False,
            pad_event=18,
            pad_level=False,
            # rich would print every local variable with the traceback, including passwords
            exception_formatter=_traceback,
        ),
    ]


def _printable(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {name: printable(fact) if isinstance(fact, str) else fact for name, fact in event.items()}


def _traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    """Writes a traceback with escaped control characters."""
    plain = io.StringIO()
    structlog.dev.plain_traceback(plain, error)
    out.write(printable(plain.getvalue(), lines=True))


def _without_own_name(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if str(event.get("logger")).partition(".")[0] in _OWN:
        del event["logger"]
    return event


def silence() -> None:
    """Silences the Kafka client in commands that report errors themselves."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
