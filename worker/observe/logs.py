"""Logs: structured, one line an event, to stderr: JSON for machines, readable where stderr is a terminal."""

import logging
import sys

import structlog


def configure(level: int = logging.INFO, process: int | None = None) -> None:
    """Routes structlog and the standard library's logging to stderr; time is UTC, RFC 3339.

    The libraries' own loggers, kafka-python's above all, are heard from WARNING on.

    Args:
        level: from which on the worker's own loggers are heard.
        process: which of several this one is; each line says it.
    """

    def number(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        return event if process is None else {"process": process, **event}

    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        number,
    ]
    readable = sys.stderr.isatty()
    renderer: list[structlog.typing.Processor] = (
        # rich would print every local variable beside the traceback, passwords included
        [
            structlog.dev.ConsoleRenderer(
                timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
            )
        ]
        if readable
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(ensure_ascii=False)]
    )
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
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    for name in ("worker", "ldp"):
        logging.getLogger(name).setLevel(level)
    # say about a missing topic, ten times a second, what the worker says once in a while; the second, which assigns
    # partitions, says it also of a topic that its client has only not heard of yet
    for name in ("kafka.cluster", "kafka.coordinator.assignors.sticky.sticky_assignor"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.captureWarnings(True)


def silence() -> None:
    """Keeps the libraries quiet in a command that itself says what goes wrong."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
