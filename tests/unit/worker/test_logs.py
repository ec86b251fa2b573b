"""Log lines: JSON for machines, short text for terminals, at the chosen level."""

import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys

import pytest

from worker.observe import logs

PROGRAM = """
import logging, structlog
from worker.observe import logs
logs.configure({level!r})
logger = structlog.get_logger("worker.service")
logger.debug("a.detail")
logger.info("partition.claimed", partition=3, offset=7)
logging.getLogger("kafka.x").info("small talk")
logging.getLogger("kafka.x").error("it is %s", "away")
"""
HEARD = {
    "debug": ["a.detail", "partition.claimed", "small talk", "it is away"],
    "info": ["partition.claimed", "it is away"],
    "warning": ["it is away"],
    "error": ["it is away"],
}


@pytest.mark.parametrize("level", HEARD)
def test_lines_are_json_without_a_terminal(level):
    command = [sys.executable, "-c", PROGRAM.format(level=level)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["event"] for line in lines] == HEARD[level]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line["time"]) for line in lines)
    assert lines[-1]["logger"] == "kafka.x"


def test_terminal_lines_have_the_time_of_day_and_no_internal_names():
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM.format(level="info")], stderr=theirs) as process:
        os.close(theirs)
        assert process.wait(60) == 0
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while True:
            shown += os.read(ours, 1 << 16)
    os.close(ours)
    said = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    first, second = [line.rstrip() for line in said.splitlines()]
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[info\] partition\.claimed  partition=3 offset=7", first)
    assert re.fullmatch(r"\d\d:\d\d:\d\d \[error\] it is away +\[kafka\.x\]", second)


def test_repeated_connection_messages_are_logged_occasionally():
    now = [0.0]
    thinned = logs._Thinned(lambda: now[0])

    def heard(name):
        return thinned.filter(logging.makeLogRecord({"name": name, "levelno": logging.ERROR}))

    def once():
        return [
            heard("kafka.net.manager"),
            heard("kafka.net.transport"),
            heard("worker.service"),
            heard("kafka.x"),
        ]

    assert once() == [True, True, True, True]
    assert once() == [False, False, True, True]
    now[0] = 10.0
    assert once() == [True, True, True, True]


@pytest.mark.parametrize(("level", "lines"), [("debug", 3), ("info", 1)])
def test_debug_level_logs_every_message(level, lines):
    program = (
        PROGRAM.format(level=level)
        + "\nfor _ in range(3): logging.getLogger('kafka.net.manager').error('no')"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert [json.loads(line)["event"] for line in said.splitlines()].count("no") == lines
