"""One Kafka and one Redis for a whole test run, shared by all its processes.

The controlling process of pytest-xdist owns the servers. It starts them when a test of any process first asks for them,
and stops them when the run ends. The processes ask over a Unix socket. A run of one process asks itself.
"""

import contextlib
import gc
import json
import os
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from docker.errors import DockerException
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from deploy.local.services import Services, UnavailableError, free_ports, kafka_version

# The images that deploy/compose names too.
KAFKA_IMAGE = f"apache/kafka:{kafka_version()}"
REDIS_IMAGE = "redis:7.2.11"

HELP = (
    "Set LDP_TEST_KAFKA (host:port) and LDP_TEST_REDIS (a URL), or start a Docker engine, or have Java 17 "
    "and Maven for deploy/local."
)


@dataclass(frozen=True)
class Server:
    """Address of a server: `host:port` for Kafka, a URL for Redis."""

    address: str


@dataclass(frozen=True)
class Pair:
    """A Kafka and a Redis that all tests of a run share. Each test names its topics and streams uniquely."""

    kafka: Server
    redis: Server
    folder: Path = Path()  # data and logs of a pair of `deploy/local`


class Source(Protocol):
    """Returns the shared pairs of a run; both methods raise `UnavailableError`."""

    def found(self) -> Pair:
        """Returns the services that the environment names, else containers, else the pair of `deploy/local`."""
        ...

    def local(self) -> Pair:
        """Returns the pair of `deploy/local`, which has its data in a folder of this machine."""
        ...


class Owner:
    """Starts each pair once, when it is first asked for; a context manager that stops them."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stack = contextlib.ExitStack()
        self._lock = threading.RLock()
        self._pairs: dict[str, Pair | UnavailableError] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stack.close()

    def found(self) -> Pair:
        """Returns the services that the environment names, else containers, else the pair of `deploy/local`."""
        return self._once("found", self._find)

    def local(self) -> Pair:
        """Returns the pair of `deploy/local`, which has its data in a folder of this machine."""
        return self._once("local", self._start)

    def _once(self, name: str, start: Callable[[], Pair]) -> Pair:
        with self._lock:
            if name not in self._pairs:
                try:
                    self._pairs[name] = start()
                except (UnavailableError, DockerException) as error:
                    self._pairs[name] = UnavailableError(f"no Kafka and Redis to test with: {error}\n{HELP}")
            pair = self._pairs[name]
        if isinstance(pair, UnavailableError):
            raise pair
        return pair

    def _start(self) -> Pair:
        started = self._stack.enter_context(Services.start(self._say))
        return Pair(Server(started.kafka.address), Server(started.redis.address), started.folder)

    def _find(self) -> Pair:
        kafka, url = os.environ.get("LDP_TEST_KAFKA"), os.environ.get("LDP_TEST_REDIS")
        if kafka and url:
            how, pair = "from LDP_TEST_KAFKA and LDP_TEST_REDIS", Pair(Server(kafka), Server(url))
        elif engine := _engine():
            how = f"containers ({KAFKA_IMAGE}, {REDIS_IMAGE}) on Docker {engine}"
            kafka, url = kafka or _kafka_container(self._stack), url or _redis_container(self._stack)
            pair = Pair(Server(kafka), Server(url))
        else:
            how, local = "deploy/local (no Docker engine answers)", self.local()
            given = Server(kafka) if kafka else local.kafka, Server(url) if url else local.redis
            pair = Pair(*given, local.folder)
        self._say(f"{how}; Kafka at {pair.kafka.address}, Redis at {pair.redis.address}")
        return pair


class Listener:
    """Answers the processes of a run on a Unix socket; a context manager."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._folder = tempfile.TemporaryDirectory(prefix="ldp-tests-")
        self.path = str(Path(self._folder.name) / "services")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(self.path)
        self._socket.listen(64)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rw") as lines, contextlib.suppress(OSError):
            try:
                pair = self._owner.found() if lines.readline() == "found\n" else self._owner.local()
                answer = {"pair": [pair.kafka.address, pair.redis.address, str(pair.folder)]}
            except UnavailableError as error:
                answer = {"error": [str(error)]}
            print(json.dumps(answer), file=lines, flush=True)


class Asker:
    """Asks the controlling process."""

    def __init__(self, path: str) -> None:
        self._path = path

    def found(self) -> Pair:
        """Returns the services that the environment names, else containers, else the pair of `deploy/local`."""
        return self._ask("found")

    def local(self) -> Pair:
        """Returns the pair of `deploy/local`, which has its data in a folder of this machine."""
        return self._ask("local")

    def _ask(self, name: str) -> Pair:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._path)
            with connection.makefile("rw") as lines:
                print(name, file=lines, flush=True)
                answer: dict[str, Any] = json.loads(lines.readline())
        if "error" in answer:
            raise UnavailableError(answer["error"][0])
        kafka, url, folder = answer["pair"]
        return Pair(Server(kafka), Server(url), Path(folder))


def _engine() -> str | None:
    """Returns the version of the Docker engine that answers, None without one."""
    with warnings.catch_warnings():
        # Without an answer the client leaves its socket to the garbage collector, once the error is released.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            with contextlib.closing(DockerClient(timeout=3).client) as engine:
                return str(engine.version()["Version"])
        except DockerException:
            pass
        gc.collect()
    return None


def _kafka_container(stack: contextlib.ExitStack) -> str:
    """Starts a broker in a container; returns its address."""
    # Clients return to the address that the broker advertises, so the port on this side is chosen first. The broker
    # reaches itself, to end transactions, inside the container, where that address is not its own.
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
    """Starts a Redis in a container; returns its URL."""
    container = DockerContainer(REDIS_IMAGE).with_exposed_ports(6379)
    container.with_command("redis-server --appendonly yes --appendfsync always --maxmemory-policy noeviction")
    container.waiting_for(LogMessageWaitStrategy("Ready to accept connections").with_startup_timeout(60))
    stack.enter_context(container)
    return f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}/0"
