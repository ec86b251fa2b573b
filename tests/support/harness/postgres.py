"""Postgres for the tests: Debian's package, installed if the user is root."""

import contextlib
import csv
import io
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deploy.local import services
from deploy.local.services import Server

_CLUSTERS = Path("/etc/postgresql-common/createcluster.conf")


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    server: Server

    def database(self, name: str) -> str:
        """Creates a database; returns its URL."""
        url = f"postgresql://ldp@127.0.0.1:{self.server.port}"
        _psql(f"{url}/postgres", f"CREATE DATABASE {name}")
        return f"{url}/{name}"


def execute(url: str, command: str) -> None:
    """Executes a statement."""
    _psql(url, command)


def rows(url: str, query: str) -> list[dict[str, str | None]]:
    """Returns the rows of a query as texts by column; None for null."""
    said = _psql(url, f"COPY ({query}) TO STDOUT (FORMAT csv, HEADER, NULL '<null>')")
    found = csv.DictReader(io.StringIO(said))
    return [{name: None if text == "<null>" else text for name, text in row.items()} for row in found]


def _psql(url: str, query: str) -> str:
    command = ["psql", "-XqtA", "-v", "ON_ERROR_STOP=1", "-c", "SET timezone = 'UTC'", "-c", query, url]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def started() -> Iterator[Postgres]:
    """Starts a server that ends with this process."""
    programs = _programs()
    guard = subprocess.Popen(
        ["sh", "-c", services._GUARD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert guard.stdout is not None
        folder = Path(os.fsdecode(guard.stdout.readline().rstrip(b"\n")))
        data, become = folder / "data", list[str]()
        data.mkdir()
        if os.geteuid() == 0:  # it refuses to run as root
            folder.chmod(0o711)
            shutil.chown(data, "postgres", "postgres")
            become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        make = [*become, str(programs / "initdb"), f"--pgdata={data}", "--username=ldp", "--auth=trust"]
        make += ["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        subprocess.run(make, cwd=folder, check=True, capture_output=True)
        (port,) = services.free_ports(1)
        settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
        command = [*become, str(programs / "postgres"), "-D", str(data)]
        command += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        ready = partial(_answers, programs)
        server = Server("postgres", f"127.0.0.1:{port}", port, command, folder, ready, 60)
        try:
            server.start()
            yield Postgres(server)
        finally:
            server.kill()
    finally:
        services._end(guard)


def _answers(programs: Path, port: int) -> bool:
    asked = [str(programs / "pg_isready"), "--host=127.0.0.1", f"--port={port}"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _programs() -> Path:
    """Returns the folder of the server's programs, installed if necessary."""
    if (found := _found()) is None and os.geteuid() == 0 and shutil.which("apt-get"):
        with services._one_at_a_time():
            # the package would create and start its own server
            services._install("pg_createcluster", "postgresql-common", print)
            _CLUSTERS.write_text("create_main_cluster = false\n")
            services._install("psql", "postgresql", print)
        found = _found()
    if found is None:
        raise services.UnavailableError("there is no Postgres (Debian: apt-get install postgresql)")
    return found


def _found() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    named = shutil.which("initdb")
    return debian[-1].parent if debian else Path(named).parent if named else None
