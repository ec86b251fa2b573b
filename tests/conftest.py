"""Services, the browser, the order and the limits of all tests.

`kafka`, `redis_url`, `admin` and `topic` use the services of the run: LDP_TEST_KAFKA and LDP_TEST_REDIS, else
containers of a Docker engine, else the pair of deploy/local. All processes of a run share them (`shared.py`).
`local_services` is the pair of deploy/local. `own_services` is a pair that a test may stop, freeze or reconfigure.
Services start on the first use. A test fails if they cannot start.
"""

import contextlib
import gc
import os
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka.admin import KafkaAdminClient

from deploy.local.services import Services, UnavailableError
from tests.support import compiled
from tests.support.changed import unchanged
from tests.support.chromium import launched
from tests.support.shared import Asker, Listener, Owner, Pair, Source

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TESTS = Path(__file__).parent
LONGEST = (
    "simulation/test_histories.py",
    "integration/operation/test_alerts.py",
    "integration/engines/test_engines.py",
    "integration/operation/test_faults.py",
    "integration/operation/test_kill_points.py",
    "integration/operation/test_readme.py",
    "integration/operation/test_outages.py",
    "integration/publishing/test_snapshots.py",
    "integration/operation/test_import.py",
    "integration/kafka/test_own_topics.py",
    "unit/deploy/test_local_services.py",
)
"""The slowest files, slowest first, so that both processes end at about the same time."""


SOURCE = pytest.StashKey[Source]()
"""The source of the shared services."""
LISTENER = pytest.StashKey[Listener]()


def pytest_configure(config: pytest.Config) -> None:
    """Prepares the shared services of the run; the first test that asks starts them."""
    if hasattr(config, "workerinput"):
        config.stash[SOURCE] = Asker(config.workerinput["services"])
        return

    def say(line: str) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"services: {line}")

    owner = Owner(say)
    config.add_cleanup(owner.__exit__)
    config.stash[SOURCE] = owner
    if getattr(config.option, "numprocesses", None):
        config.stash[LISTENER] = listener = Listener(owner)
        config.add_cleanup(listener.__exit__)
        listener.__enter__()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Gives a process of pytest-xdist the socket of the services."""
    node.workerinput["services"] = node.config.stash[LISTENER].path


def _or_fail(found: Callable[[], Pair]) -> Pair:
    try:
        return found()
    except UnavailableError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Pair:
    """Returns the Kafka and the Redis of this run."""
    return _or_fail(request.config.stash[SOURCE].found)


@pytest.fixture(scope="session")
def local_services(request: pytest.FixtureRequest) -> Pair:
    """Returns the pair of deploy/local of this run, which has its data in a folder."""
    return _or_fail(request.config.stash[SOURCE].local)


@pytest.fixture(scope="session")
def _own_services() -> Iterator[Services]:
    with Services.start() as services:
        yield services


@pytest.fixture
def own_services(_own_services: Services) -> Services:
    """Returns a pair of this process, which the test may break; servers that an earlier test stopped run again."""
    for server in (_own_services.redis, _own_services.kafka):
        if not server.running():
            server.start()
    return _own_services


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles the kernels once for all processes; meanwhile, in a fresh checkout, rewrites the tests' assertions."""
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    compiled_before = compiled.restore()
    with contextlib.ExitStack() as stack:
        rewrites = not sys.dont_write_bytecode and not (TESTS / "unit" / "__pycache__").exists()
        if rewrites and not compiled_before and getattr(session.config.option, "numprocesses", None):
            collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
            stack.enter_context(
                subprocess.Popen(collect, cwd=session.config.rootpath, stdout=subprocess.DEVNULL)
            )
        warm = (
            "from ldp import kernels; from worker.counting import lateness; from worker.kafka.decoding import records;"
            " kernels.warm(); records.warm(); records.warm_codecs(); lateness.warm()"
        )
        subprocess.run([sys.executable, "-c", warm], cwd=session.config.rootpath, check=True)
    compiled.keep()


def pytest_report_header() -> str:
    """Reports whether statistical tests are left out."""
    return f"statistical: {'left out, ldp did not change since LDP_TEST_BASE' if unchanged() else 'all'}"


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names bytes by their argument, so that ids are the same in all processes."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects statistical tests if `ldp` did not change; sorts the slowest files and integration tests first."""
    if unchanged():
        left_out = [item for item in items if item.get_closest_marker("statistical")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("statistical")]
    waiting = {item.path for item in items if item.get_closest_marker("integration")}
    longest = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path, len(LONGEST)), item.path not in waiting))
    for item in items:  # a Kafka client that is closed while it connects leaves its socket open
        if item.get_closest_marker("integration"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_collection_finish() -> None:
    """Freezes the collected tests: half a million objects cost the garbage collector 0.2 s each time."""
    gc.collect()
    gc.freeze()


ALLOWED = {"long": 1800.0, "slow": 60.0, "integration": 30.0}
"""Seconds of CPU that a test of each marker may take; integration tests include all processes that they start."""
SMOKE = 10.0
"""Seconds of CPU that a test without any of these markers may take; most take milliseconds."""
_TICKS = os.sysconf("SC_CLK_TCK")


def _spent(tree: bool) -> float:
    """Returns the CPU seconds of this process, or of it and its descendants as Linux shows them."""
    times, children = dict[int, int](), dict[int, list[int]]()
    for path in Path("/proc").glob("[0-9]*/stat") if tree else ():
        with contextlib.suppress(OSError):
            fields = path.read_bytes().rpartition(b")")[2].split()
            times[int(path.parent.name)] = sum(map(int, fields[11:15]))  # including ended children
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    ticks, left = 0, children.get(os.getpid(), [])
    while left:
        pid = left.pop()
        ticks += times[pid]
        left += children.get(pid, ())
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / _TICKS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that takes much longer than its markers allow, in CPU time: a busy machine adds none."""
    tree = item.get_closest_marker("integration") is not None
    before = _spent(tree)
    yield
    spent = _spent(tree) - before
    allowed = max(
        [seconds for marker, seconds in ALLOWED.items() if item.get_closest_marker(marker)] or [SMOKE]
    )
    if spent > allowed:
        pytest.fail(
            f"took {spent:.1f} s of CPU; its markers allow {allowed:g} s (pyproject.toml)", pytrace=False
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[pytest.TestReport]:
    """Fails a test of real services that is skipped in CI."""
    report = yield
    if report.skipped and os.environ.get("CI") and item.get_closest_marker("integration"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _sockets_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collects the clients that a test left, so that their warnings are its own."""
    yield
    if request.node.get_closest_marker("integration"):
        gc.collect()


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """A browser for all tests of a process."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def kafka(services: Pair) -> str:
    """Returns the bootstrap string of the broker."""
    return services.kafka.address


@pytest.fixture(scope="session")
def redis_url(services: Pair) -> str:
    """Returns the URL of the Redis."""
    return services.redis.address


@pytest.fixture(scope="session")
def admin(kafka: str) -> Iterator[KafkaAdminClient]:
    """An admin client of the broker."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as client:
        yield client


@pytest.fixture
def topic(admin: KafkaAdminClient) -> Iterator[Callable[..., str]]:
    """Creates topics with unique names: topic(partitions=2, **{"cleanup.policy": "compact"}) -> name."""
    made: list[str] = []

    def make(partitions: int = 1, name: str = "test", **settings: Any) -> str:
        made.append(f"{name}-{secrets.token_hex(6)}")
        new = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
        admin.create_topics({made[-1]: new}, wait_for_metadata=True)
        return made[-1]

    yield make
    if made:
        admin.delete_topics(made)
