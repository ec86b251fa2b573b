"""The deployment's files, checked as far as that goes without a container engine."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from deploy.local import services
from tests.long.alerts.rules import RULES, rules
from tests.support import prometheus, shared
from tests.support.dashboards import exposed
from tests.support.docs import page
from worker import cli, config
from worker.config import schema

DEPLOY = Path(services.__file__).parent.parent
ROOT = DEPLOY.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = DEPLOY / "compose" / "compose.yaml"
STACK: dict[str, Any] = YAML(typ="safe").load(COMPOSE)
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
RULES_TESTS: list[dict[str, Any]] = YAML(typ="safe").load(DEPLOY / "prometheus" / "rules_test.yml")["tests"]


def run(command: list[str | Path], folder: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tool(name: str) -> Path:
    return Path(sys.executable).parent / name


# --- the image ----------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing() -> None:
    run([tool("hadolint"), "Dockerfile"])


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert "*" in ignored
    copies = [line for line in DOCKERFILE.splitlines() if re.match(r"COPY (?!--from)", line)]
    assert len(copies) == 6
    for source in " ".join(" ".join(copy.split()[1:-1]) for copy in copies).split():
        assert f"!{source}" in ignored
        assert (ROOT / source).exists()


def test_every_kernel_is_compiled_into_the_image() -> None:
    sources = [path for package in ("ldp", "worker") for path in (ROOT / package).rglob("*.py")]
    kernels = {
        path.parent
        for path in sources
        if re.search(r"cache=True|.cache.: True", path.read_text(encoding="utf-8"))
    }
    touched = set(re.findall(r"/site-packages/(\S+)/\*\.py", DOCKERFILE))
    assert touched == {folder.relative_to(ROOT).as_posix() for folder in kernels}
    service = (ROOT / "worker/service/run.py").read_text(encoding="utf-8")
    compiled, used = (set(re.findall(r"\b(\w+)\.(warm\w*)", text)) for text in (DOCKERFILE, service))
    assert len(touched) == len({module for module, _ in compiled})
    # `compiling` warms those `kernels` that the configured streams need
    assert compiled == {(module, name) for module, name in used if module != "compiling"} | {
        ("kernels", "warm")
    }


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server on a free port whose /healthz answers with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_queries_the_worker(status: int, code: int) -> None:
    found = re.search(r"^HEALTHCHECK .*\\\n +CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    _, *arguments = json.loads(found[1])
    with answering(status) as port:
        environment = os.environ | {"LDP_WORKER_HTTP__PORT": str(port)}
        done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, check=False)
    assert done.returncode == code


def test_the_image_listens_on_all_interfaces() -> None:
    """As compose's Prometheus; a worker outside compose listens only on its own machine."""
    assert "LDP_WORKER_HTTP__HOST=0.0.0.0\n" in DOCKERFILE
    assert schema.Http().host == "127.0.0.1"
    for name in ("worker-1", "worker-2"):
        assert "LDP_WORKER_HTTP__HOST" not in SERVICES[name].get("environment", {})


# --- compose ------------------------------------------------------------------------------------------------


def test_the_compose_file_is_valid() -> None:
    run([tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", COMPOSE])
    assert "name" not in STACK  # which older versions reject


def test_compose_gives_the_gateway_keys_of_oblivious_http(tmp_path: Path) -> None:
    file = COMPOSE.with_name("ohttp.yaml")
    run([tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", file])
    added = YAML(typ="safe").load(file)
    (service,) = added["services"]
    assert SERVICES[service]["command"] == ["gateway"]
    assert added["services"][service]["secrets"] == [*added["secrets"]]
    files = [Path("/run/secrets") / name for name in added["secrets"]]
    environ = SERVICES[service]["environment"] | added["services"][service]["environment"]
    for name in ("compose/worker.toml", "demo/emoji.txt"):
        shutil.copy(DEPLOY / name, tmp_path)
    configured = config.load(tmp_path / "worker.toml", environ)
    assert configured.gateway.ohttp.key_files == files


def test_every_image_has_the_version_of_the_tests() -> None:
    images = {name: service["image"] for name, service in SERVICES.items()}
    for name, image in images.items():
        assert "build" in SERVICES[name] or re.search(r":v?\d", image), image
    assert images["kafka"] == shared.KAFKA_IMAGE
    assert images["redis"] == shared.REDIS_IMAGE


def test_ports_are_open_to_this_machine_only() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_redis_persists_acknowledged_writes() -> None:
    command = SERVICES["redis"]["command"]
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert settings["--appendonly"] == "yes"
    assert settings["--maxmemory-policy"] == "noeviction"
    assert any(volume.endswith(":/data") for volume in SERVICES["redis"]["volumes"])


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_the_worker_commands_exist_with_their_options(name: str) -> None:
    command, *arguments = SERVICES[name]["command"]
    known = {option for parameter in cli.cli.commands[command].params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_the_configuration_mounted_by_compose_is_valid(tmp_path: Path) -> None:
    for volume in SERVICES["worker-1"]["volumes"]:
        source, target, mode = volume.split(":")
        assert mode == "ro"
        assert Path(target).parent == Path("/etc/ldp-worker")
        (tmp_path / Path(target).name).write_bytes((COMPOSE.parent / source).read_bytes())
    loaded = config.load(tmp_path / "worker.toml", {})
    assert "LDP_WORKER_CONFIG=/etc/ldp-worker/worker.toml" in DOCKERFILE
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert all(f"INSIDE://{server}" in listeners for server in loaded.kafka.bootstrap_servers)
    assert loaded.redis.url == "redis://redis:6379/0"
    arguments = SERVICES["simulate"]["command"]
    counts = arguments[arguments.index("--counts") + 1]
    header = (tmp_path / Path(counts).name).read_text(encoding="utf-8").splitlines()[0].split(",")
    assert arguments[arguments.index("--column") + 1] in header
    assert arguments[arguments.index("--label-column") + 1] in header


# --- Prometheus ---------------------------------------------------------------------------------------------


def test_promtool_accepts_configuration_and_rules() -> None:
    run([prometheus.installed("promtool"), "check", "config", DEPLOY / "prometheus/prometheus.yml"])
    run([prometheus.installed("promtool"), "check", "rules", RULES])


@pytest.mark.slow  # promtool takes 7 s of CPU
def test_every_alert_fires_exactly_when_expected() -> None:
    run([prometheus.installed("promtool"), "test", "rules", "rules_test.yml"], DEPLOY / "prometheus")
    cases = [case for test in RULES_TESTS for case in test["alert_rule_test"]]
    alerts = {rule["alert"] for rule in rules() if "alert" in rule}
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


def test_every_recorded_series_is_tested_well_named_and_used() -> None:
    recorded = {rule["record"]: rule["expr"] for rule in rules() if "record" in rule}
    tested = " ".join(case["expr"] for test in RULES_TESTS for case in test.get("promql_expr_test", []))
    asked = " ".join(rule["expr"] for rule in rules())
    levels = {"stream": ["stream"], "stream_partition": ["stream", "partition"], "server": ["server"]}
    for name, expression in recorded.items():
        level, metric, operations = name.split(":")
        assert metric.startswith("ldp_worker_")
        assert operations
        assert f"by ({', '.join(levels[level])})" in expression
        assert name in tested
        assert name in asked
    assert set(re.findall(r"\b[a-z_]+:\w+:\w+", asked)) <= recorded.keys()


def test_every_alert_has_a_section_in_the_runbook() -> None:
    urls = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules() if "alert" in rule}
    runbook = {name: page(f"operate/{name}") for name in ("runbook", "runbook-records", "runbook-uploads")}
    sections = {
        alert: f"docs/operate/{name}.md#{alert.lower()}"
        for name, text in runbook.items()
        for alert in re.findall(r"(?m)^## (\w+)$", text)
    }
    assert urls == sections
    histograms = {name.removesuffix("_bucket") for name in exposed()}
    assert names("".join(runbook.values())) <= exposed() | histograms


def test_prometheus_scrapes_all_processes_as_the_jobs_of_the_alerts() -> None:
    scraped = YAML(typ="safe").load(DEPLOY / "prometheus/prometheus.yml")["scrape_configs"]
    targets = {one["job_name"]: one["static_configs"][0]["targets"] for one in scraped}
    text, port = RULES.read_text(encoding="utf-8"), schema.Http().port
    assert f'job="{prometheus.JOB}"' in text
    assert f'job=~"{"|".join(job for job in targets if job != prometheus.JOB)}"' in text
    assert targets == {
        prometheus.JOB: [f"{name}:{port}" for name in SERVICES if name.startswith("worker-")],
        "ldp-gateway": [f"gateway:{schema.Gateway().metrics_port}"],
        "ldp-shuffler": [f"shuffler:{port}"],
    }
    # the image's health check asks this port
    port_of_probes = SERVICES["gateway"]["environment"]["LDP_WORKER_HTTP__PORT"]
    assert port_of_probes == str(schema.Gateway().metrics_port)


def names(text: str) -> set[str]:
    """The metrics that are named, and not within the names of recorded series."""
    return set(re.findall(r"(?<![\w:])ldp_(?:worker|gateway|shuffle)_\w+(?!:)", text))


def test_alerts_use_existing_metrics_only() -> None:
    assert names("\n".join(rule["expr"] for rule in rules())) <= exposed()
