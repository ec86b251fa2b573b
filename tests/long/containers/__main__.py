"""Tests of the image and the compose file on a container engine: ``python -m tests.long.containers``.

Uses the engine at DOCKER_HOST or in its usual place, with the project's images. Without an engine, on Debian as root,
it installs one, with stand-in images from Debian's packages, Maven Central and the local Python, without Grafana. It
prints a line for each finding and removes what it started; packages and images stay. Exit codes: 1 for a failed
check, 2 if the checks cannot run. Takes about 10 minutes on two cores.
"""

import argparse
import contextlib
import signal
import sys
from types import FrameType
from typing import NoReturn

from tests.long.containers import image, standins, suite, worker
from tests.long.containers.engine import engine
from tests.long.containers.said import CannotError, Findings, complain
from tests.long.containers.stack import Stack

SERVICES = ("kafka", "redis", "topics", *worker.WORKERS, "gateway", "shuffler", "prometheus")


def told(number: int, _frame: FrameType | None) -> NoReturn:
    """A signal ends this as Ctrl-C does: started containers are removed."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # cleaning up is not to be interrupted
    raise KeyboardInterrupt(number)


def all_of_it(findings: Findings) -> None:
    """The engine, the image, the stack, the suite."""
    with engine(findings) as found, contextlib.ExitStack() as at_the_end:
        services: tuple[str, ...] = SERVICES
        if found.ours:
            standins.make(found.folder, findings)
            findings.say(f"left out, for no package has its program: {', '.join(standins.LEFT_OUT)}")
        else:
            services = (*SERVICES, *standins.LEFT_OUT)
        image.build(findings)
        image.look(findings)
        stack = Stack(found)
        stack.down()
        at_the_end.callback(stack.down)
        stack.compose("up", "--detach", *services)
        worker.confined(stack, findings)
        worker.watched(findings)
        worker.uploaded(stack, findings)
        worker.counted(stack, findings)
        worker.health(stack, findings)
        worker.logged(stack, findings)
        worker.ended(stack, findings)
        stack.down()
        suite.few(found, findings)


def main() -> int:
    """Tries all; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, told)
    findings = Findings()
    try:
        all_of_it(findings)
    except CannotError as error:
        complain(f"could not be tried: {error}")
        return 2
    except KeyboardInterrupt:
        complain("told to stop")
        return 130
    for wrong in findings.wrong:
        complain(f"not so: {wrong}")
    return 1 if findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
