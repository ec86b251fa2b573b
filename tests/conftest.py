"""Real services for the tests that ask for them: the `kafka`, `redis_url`, `topic` and `local_services` fixtures.

What LDP_TEST_KAFKA and LDP_TEST_REDIS name; else containers where a Docker engine answers; else the services of
deploy/local. Nothing is started before a test asks, what was chosen is printed, and nothing to be had is a failure.
"""

import contextlib
import gc
import os
import secrets
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from docker.errors import DockerException
from kafka.admin import KafkaAdminClient
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from deploy.local.services import Services, UnavailableError, free_ports, kafka_version
from tests.chromium import launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The images that deploy/compose names too.
KAFKA_IMAGE = f"apache/kafka:{kafka_version()}"
REDIS_IMAGE = "redis:7.2.11"


TESTS = Path(__file__).parent
LONGEST = (
    "simulation/test_histories.py",
    "integration/test_engines.py",
    "integration/test_faults.py",
    "integration/test_kill_points.py",
    "integration/test_outages.py",
    "integration/test_probes.py",
    "integration/test_dashboard.py",
    "integration/test_published.py",
    "integration/test_hostile.py",
    "integration/test_processes.py",
    "unit/deploy/test_local_services.py",
    "integration/test_bombs.py",
)
"""The files that take longest, the longest first; a run ends soonest where none of them is begun last."""


@dataclass(frozen=True)
class Found:
    """The services of this test run."""

    kafka: str
    redis: str
    redis_is_ours: bool
    how: str


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Iterator[Found]:
    """The Kafka and the Redis of this run, found or started."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    capture = request.config.pluginmanager.get_plugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            if hasattr(
                request.config, "workeroutput"
            ):  # one of several processes of pytest-xdist: the first one prints it at the end
                request.config.workeroutput.setdefault("services", []).append(line)
            else:
                reporter.ensure_newline()
                reporter.write_line(f"services: {line}")

    with contextlib.ExitStack() as stack:
        try:
            found = _find(stack, say, lambda: request.getfixturevalue("own_services"))
        except (UnavailableError, DockerException) as error:
            pytest.fail(
                f"no Kafka and Redis to test with: {error}\n"
                "Set LDP_TEST_KAFKA (host:port) and LDP_TEST_REDIS (a URL), or start a Docker engine, or have Java 17 "
                "and Maven for deploy/local.",
                pytrace=False,
            )
        say(f"{found.how}; Kafka at {found.kafka}, Redis at {found.redis}")
        yield found


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compiles the kernels once, before each process of the tests and each worker would, while tests wait for them.

    So for the tests themselves, the first time that several processes are to collect them; on another core.
    """
    if hasattr(session.config, "workerinput") or session.config.option.collectonly:
        return
    with contextlib.ExitStack() as stack:
        kept = not sys.dont_write_bytecode and not (TESTS / "unit" / "__pycache__").exists()
        if kept and getattr(session.config.option, "numprocesses", None):
            collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
            stack.enter_context(
                subprocess.Popen(collect, cwd=session.config.rootpath, stdout=subprocess.DEVNULL)
            )
        warm = (
            "from ldp import kernels; from worker.counting import lateness; from worker.kafka import records;"
            " kernels.warm(); records.warm(); lateness.warm()"
        )
        subprocess.run([sys.executable, "-c", warm], cwd=session.config.rootpath, check=True)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Names bytes by their argument: an id of what a codec wrote, with its time, differs between the processes."""
    return argname if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, then those that need services: they mostly wait, and others run meanwhile.

    A Kafka client that is closed while it connects leaves the socket to the garbage collector.
    """
    waiting = {item.path for item in items if item.get_closest_marker("integration")}
    longest = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (longest.get(item.path, len(LONGEST)), item.path not in waiting))
    for item in items:
        if item.get_closest_marker("integration"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


def pytest_collection_finish() -> None:
    """Takes what was collected out of the garbage collector's sight: half a million objects, 0.2 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _sockets_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collects what clients left in the test that left it, and not in another."""
    yield
    if request.node.get_closest_marker("integration"):
        gc.collect()


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """A browser for all tests that want a page."""
    with launched() as browser:
        yield browser


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Prints what a process of pytest-xdist chose; it has no terminal of its own."""
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    for line in getattr(node, "workeroutput", {}).get("services", []):
        reporter.ensure_newline()
        reporter.write_line(f"services of {node.gateway.id}: {line}")


def _find(stack: contextlib.ExitStack, say: Callable[[str], None], local: Callable[[], Services]) -> Found:
    kafka, url = os.environ.get("LDP_TEST_KAFKA"), os.environ.get("LDP_TEST_REDIS")
    if kafka and url:
        return Found(kafka, url, redis_is_ours=False, how="from LDP_TEST_KAFKA and LDP_TEST_REDIS")
    if engine := _engine():
        how = f"containers ({KAFKA_IMAGE}, {REDIS_IMAGE}) on Docker {engine}"
        return Found(
            kafka or _kafka_container(stack),
            url or _redis_container(stack),
            redis_is_ours=not url,
            how=how,
        )
    return Found(
        kafka or local().kafka.address,
        url or local().redis.address,
        redis_is_ours=not url,
        how="deploy/local (no Docker engine answers)",
    )


def _engine() -> str | None:
    """The version of the Docker engine that answers, if one does."""
    with warnings.catch_warnings():
        # When nobody answers the client leaves its socket to the garbage collector, once the error is forgotten.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            with contextlib.closing(DockerClient(timeout=3).client) as engine:
                return str(engine.version()["Version"])
        except DockerException:
            pass
        gc.collect()
    return None


def _kafka_container(stack: contextlib.ExitStack) -> str:
    """A broker; clients come back to the address that it advertises, so the port on this side is chosen first.

    It reaches itself, to end transactions, inside the container, where that address is nobody's.
    """
    (port,) = free_ports(1)
    container = DockerContainer(KAFKA_IMAGE).with_bind_ports(9092, port)
    address = f"{container.get_docker_client().host()}:{port}"
    container.with_envs(
        KAFKA_PROCESS_ROLES="broker,controller",
        KAFKA_NODE_ID="1",
        KAFKA_CONTROLLER_QUORUM_VOTERS="1@localhost:9093",
        KAFKA_LISTENERS="OUTSIDE://:9092,INSIDE://:9094,CONTROLLER://:9093",
        KAFKA_ADVERTISED_LISTENERS=f"OUTSIDE://{address},INSIDE://localhost:9094",
        KAFKA_INTER_BROKER_LISTENER_NAME="INSIDE",
        KAFKA_CONTROLLER_LISTENER_NAMES="CONTROLLER",
        KAFKA_LISTENER_SECURITY_PROTOCOL_MAP="OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR="1",
        KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS="4",
        KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR="1",
        KAFKA_TRANSACTION_STATE_LOG_MIN_ISR="1",
        KAFKA_TRANSACTION_STATE_LOG_NUM_PARTITIONS="4",
        KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
        KAFKA_AUTO_CREATE_TOPICS_ENABLE="false",
    )
    container.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(120))
    stack.enter_context(container)
    return address


def _redis_container(stack: contextlib.ExitStack) -> str:
    container = DockerContainer(REDIS_IMAGE).with_exposed_ports(6379)
    container.with_command("redis-server --appendonly yes --appendfsync always --maxmemory-policy noeviction")
    container.waiting_for(LogMessageWaitStrategy("Ready to accept connections").with_startup_timeout(60))
    stack.enter_context(container)
    return f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"


@pytest.fixture(scope="session")
def kafka(services: Found) -> str:
    """The bootstrap string of a broker."""
    return services.kafka


@pytest.fixture
def redis_url(services: Found) -> str:
    """The URL of a Redis; empty where it is ours, so tests name their streams uniquely (see `topic`)."""
    if services.redis_is_ours:
        with redis.Redis.from_url(services.redis) as store:
            store.flushdb()
    return services.redis


@pytest.fixture(scope="session")
def admin(kafka: str) -> Iterator[KafkaAdminClient]:
    """An admin client of the broker."""
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=kafka)) as client:
        yield client


@pytest.fixture
def topic(admin: KafkaAdminClient) -> Iterator[Callable[..., str]]:
    """Makes topics with names of their own: topic(partitions=2, **{"cleanup.policy": "compact"}) -> name."""
    made: list[str] = []

    def make(partitions: int = 1, name: str = "test", **settings: Any) -> str:
        made.append(f"{name}-{secrets.token_hex(6)}")
        new = {"num_partitions": partitions, "replication_factor": 1, "configs": settings}
        admin.create_topics({made[-1]: new}, wait_for_metadata=True)
        return made[-1]

    yield make
    if made:
        admin.delete_topics(made)


@pytest.fixture(scope="session")
def own_services() -> Iterator[Services]:
    """A Kafka and a Redis of deploy/local for the tests of this process, one after the other."""
    with Services.start() as services:
        yield services


@pytest.fixture
def local_services(own_services: Services) -> Services:
    """The same, to kill and restart; one that the test before left dead runs again."""
    for server in (own_services.redis, own_services.kafka):
        if not server.running():
            server.start()
    return own_services
