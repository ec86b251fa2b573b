"""Kafka Connect with Debezium's JDBC sink; Maven fetches the jars once."""

import contextlib
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from deploy.local import services
from deploy.local.services import Server

POM = Path(__file__).parents[1] / "connect" / "pom.xml"


def jars() -> Path:
    """Returns the folder of the jars, fetched on first use."""
    name = f"connect-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    with services._fetched(name) as folder:
        if folder is not None:
            maven = services.program("mvn", services.MAVEN)
            assert maven is not None, f"there is no mvn on PATH (Debian: apt-get install {services.MAVEN})"
            copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            command = [maven, "-B", "-q", "--strict-checksums", "-f", str(POM), *copy]
            subprocess.run(command, check=True, capture_output=True)
    return services.cache() / name


@contextlib.contextmanager
def sink(kafka: str, folder: Path, settings: str) -> Iterator[Server]:
    """Runs a sink until the block ends."""
    (port,) = services.free_ports(1)
    worker = folder / "connect.properties"
    worker.write_text(
        f"""\
bootstrap.servers={kafka}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.storage.file.filename={folder}/connect.offsets
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
plugin.path={folder}/plugins
"""
    )
    plugins = folder / "plugins" / "sink"
    plugins.mkdir(parents=True)
    (folder / "sink.properties").write_text(settings)
    command = [shutil.which("java") or "java", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars()}/*"]
    command += [
        "org.apache.kafka.connect.cli.ConnectStandalone",
        str(worker),
        str(folder / "sink.properties"),
    ]
    server = Server("connect", f"127.0.0.1:{port}", port, command, folder, _answers, 120)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _answers(port: int) -> bool:
    return services._free(port) is None
