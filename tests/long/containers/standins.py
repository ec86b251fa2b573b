"""Images with the names that the project uses, made of Debian's packages, for an engine without a registry.

Each is a root file system by mmdebstrap plus Kafka's jars (from deploy/local) and the local Python of the image's
version, or a Python from Debian. Commands, users, folders and ports equal those of the real images. The Python gets the
local configuration of pip, so the project's Dockerfile needs no CA or address.
"""

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local.services import kafka_jars
from tests.long.containers.said import ROOT, Findings, run

SUITE = "bookworm"
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PIP = {"cert", "index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout"}
"""Settings of the local pip that name package sources."""
LIBRARIES = (
    *("ca-certificates", "libbz2-1.0", "libexpat1", "libffi8", "liblzma5", "libncursesw6", "libreadline8"),
    *("libsqlite3-0", "libssl3", "libuuid1", "netbase", "tzdata", "zlib1g"),
)
"""Libraries of a Python."""
SERVERS = ("default-jre-headless", "prometheus", "redis-server")
"""Programs of the services."""


@dataclass(frozen=True)
class StandIn:
    """One image."""

    packages: tuple[str, ...]
    """Debian packages of its root file system; images with the same packages share it."""
    lay: Callable[[Path], None]
    """Puts what comes on top into a folder."""
    recipe: str
    """The rest of its Dockerfile."""


def image(service: str) -> str:
    """The image of a service of the compose file."""
    text = (ROOT / "deploy/compose/compose.yaml").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^  {service}:\n(?:    .*\n)*?    image: (\S+)", text)
    assert found is not None, service
    return found[1]


def base() -> str:
    """The Dockerfile's base."""
    found = re.search(r"(?m)^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert found is not None
    return found[1]


def python() -> Path | None:
    """The folder of a Python of the image's version that can be taken elsewhere, if this machine has one."""
    version = ".".join(base().partition(":")[2].split(".")[:2])
    candidates = [
        Path(found).resolve() for found in (shutil.which(f"python{version}"), sys.executable) if found
    ]
    candidates += sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for candidate in candidates:
        says = "import sys; print('{}.{}'.format(*sys.version_info), sys.base_prefix)"
        said = run(candidate, "-c", says, must=False).stdout.split()
        # The system's Python is spread over /usr.
        if said and said[0] == version and said[1] != "/usr":
            return Path(said[1])
    return None


def no_more(_folder: Path) -> None:
    """Debian has all of it."""


def lay_python(folder: Path) -> None:
    """The Python, the CA bundle and pip's configuration."""
    if (prefix := python()) is not None:
        shutil.copytree(
            prefix,
            folder / "usr/local",
            symlinks=True,
            ignore=shutil.ignore_patterns(
                "__pycache__", "*.a", "test", "tests", "site-packages", "share", "idlelib", "turtledemo"
            ),
        )
        library = next((folder / "usr/local/lib").glob("python3.*"))
        (library / "site-packages").mkdir()
    if Path(BUNDLE).exists():
        (folder / "etc/ssl/certs").mkdir(parents=True)
        shutil.copy(BUNDLE, folder / BUNDLE.lstrip("/"))
    configured = run(sys.executable, "-m", "pip", "config", "list", must=False).stdout
    settings = dict(re.findall(r"(?m)^[^.\s]+\.\.?([\w-]+)='(.*)'$", configured))
    lines = [f"{key} = {BUNDLE if key == 'cert' else value}" for key, value in settings.items() if key in PIP]
    (folder / "etc").mkdir(exist_ok=True)
    (folder / "etc/pip.conf").write_text("\n".join(["[global]", *lines, ""]))


def lay_kafka(folder: Path) -> None:
    """Kafka's jars, its start, and the tool that the health check calls."""
    home = folder / "opt/kafka"
    shutil.copytree(kafka_jars(lambda _: None), home / "libs")
    (home / "bin").mkdir()
    shutil.copy(Path(__file__).with_name("kafka.sh"), home / "bin/start.sh")
    tool = home / "bin/kafka-broker-api-versions.sh"
    tool.write_text(
        "#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp '/opt/kafka/libs/*' "
        'org.apache.kafka.tools.BrokerApiVersionsCommand "$@"\n'
    )
    for script in (home / "bin").iterdir():
        script.chmod(0o755)


def stand_ins() -> dict[str, StandIn]:
    """All of them, by the name of the image they stand in for."""
    own = python() is not None
    return {
        base(): StandIn(
            LIBRARIES if own else ("ca-certificates", "python3", "python3-venv"),
            lay_python,
            "RUN ldconfig" if own else "RUN ln -s python3 /usr/bin/python",
        ),
        image("redis"): StandIn(
            SERVERS,
            no_more,
            "RUN mkdir -p /data && chown redis:redis /data\nVOLUME /data\nWORKDIR /data\nEXPOSE 6379\n"
            # The image's configuration lets it answer other machines.
            """ENTRYPOINT ["sh", "-c", "exec \\"$@\\" --protected-mode no", "redis"]\nCMD ["redis-server"]""",
        ),
        image("kafka"): StandIn(
            SERVERS,
            lay_kafka,
            "RUN useradd --uid 1000 appuser && mkdir -p /var/lib/kafka/data && chown appuser /var/lib/kafka/data\n"
            'VOLUME /var/lib/kafka/data\nUSER appuser\nCMD ["/opt/kafka/bin/start.sh"]',
        ),
        image("prometheus"): StandIn(
            SERVERS,
            no_more,
            "RUN mkdir -p /prometheus && chown nobody:nogroup /prometheus\nVOLUME /prometheus\nUSER nobody\n"
            'ENTRYPOINT ["/usr/bin/prometheus"]\n'
            'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
        ),
    }


LEFT_OUT = ("grafana",)
"""Services whose program no package here carries."""


def make(folder: Path, findings: Findings) -> None:
    """Makes and names all of them."""
    roots: dict[tuple[str, ...], str] = {}
    for name, stand_in in stand_ins().items():
        context = folder / name.partition(":")[0].replace("/", "-")
        (context / "top").mkdir(parents=True)
        if stand_in.packages not in roots:
            roots[stand_in.packages] = root(stand_in.packages, context / "root.tar")
        stand_in.lay(context / "top")
        (context / "Dockerfile").write_text(
            f"FROM {roots[stand_in.packages]}\nCOPY top /\n{stand_in.recipe}\n"
        )
        run("docker", "build", "--tag", name, context)
        shutil.rmtree(context)
        findings.say(f"stand-in for {name}: Debian {SUITE}{on_top(name)}")


def on_top(name: str) -> str:
    """Describes a stand-in's contents in addition to Debian's packages."""
    if name == image("kafka"):
        return f"'s Java, Kafka {name.partition(':')[2]} of Maven Central"
    if name != base():
        return f"'s {'redis-server' if name == image('redis') else 'prometheus'}"
    prefix = python()
    return "'s Python" if prefix is None else f", Python {prefix.name} of this machine"


def root(packages: tuple[str, ...], tar: Path) -> str:
    """A root file system of Debian as an image, without manuals and caches; licences stay."""
    ways = {"man": "exclude", "locale": "exclude", "doc": "exclude", "doc/*/copyright": "include"}
    trim = [
        f"--dpkgopt=path-{way}=/usr/share/{what}{'' if way == 'include' else '/*'}"
        for what, way in ways.items()
    ]
    # A Java package fails if the folder of manuals is missing.
    manuals = '--essential-hook=mkdir -p "$1/usr/share/man/man1"'
    wanted = f"--include={','.join(packages)}"
    # Ended halfway, its processes and mounts go with the namespaces, and its files with the folder.
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    bootstrap = ("mmdebstrap", "--quiet", "--variant=minbase", wanted, *trim, manuals, SUITE)
    run(*apart, *bootstrap, tar, more={"TMPDIR": str(tar.parent)})
    made = run("docker", "import", tar).stdout.strip()
    tar.unlink()
    return made
