"""The tests' own way to containers: testcontainers, on the same engine."""

import re
import sys
from collections.abc import Iterable

from tests.long.containers.engine import Engine
from tests.long.containers.said import Findings, run

TESTS = (
    "tests/integration/operation/test_worker.py::test_sigterm_commits_and_a_restart_continues_from_there",
    "tests/integration/operation/test_audit.py::test_a_batch_over_the_limit_is_one_rejected_record_for_the_audit_too",
    "tests/integration/operation/test_worker.py::test_probes_and_metrics_over_http",
)


def few(engine: Engine, findings: Findings, tests: Iterable[str] = TESTS) -> None:
    """Runs a few tests on containers that they start themselves."""
    more = dict.fromkeys(("LDP_TEST_KAFKA", "LDP_TEST_REDIS"), "")
    if engine.ours:
        # Its helper's image is in no package, and the engine removes the containers; ports belong to this machine.
        more |= {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_CONNECTION_MODE": "docker_host"}
        more |= {"TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"}
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(*pytest, *tests, more=more, must=False)
    services = re.findall(r"services: (containers .*?);", done.stdout)
    last = (done.stdout.strip().splitlines() or [""])[-1].strip("= ")
    tail = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
    findings.see(bool(services), f"the suite takes {services[0] if services else 'containers'}", tail)
    findings.see(done.returncode == 0, f"integration tests on them: {last}", tail)
