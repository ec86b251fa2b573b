"""The manifests of deploy/kubernetes, rendered by kubectl and read as a cluster would, as far as that goes."""

import functools
import json
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import certifi
import jsonschema
import kubernetes_validate
import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML

from deploy.kubernetes import rules
from tests.long.alerts.rules import rules as alert_rules
from tests.support import prometheus, shared
from tests.support.docs import block, page
from worker import cli, config
from worker.check import kafka as check_kafka
from worker.check import redis as check_redis
from worker.config import schema
from worker.http import server
from worker.service import loop, processes

FOLDER = Path(rules.__file__).parent
GRAFANA = FOLDER.parent / "grafana"
DASHBOARDS = GRAFANA / "dashboards"
ROOT = FOLDER.parent.parent
IMAGE = (ROOT / "Dockerfile").read_text(encoding="utf-8").rpartition("\nFROM ")[2]
PAGE = page("operate/kubernetes")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CRDS = json.loads((ROOT / "tests/vectors/crds.schema.json").read_text(encoding="utf-8"))
OVERLAYS = ("try-out", "production")
VERSIONS = ("1.27", "1.37")
"""The oldest Kubernetes that the page names, and the newest whose schemas there are."""
SECRETS = "/run/secrets/ldp-worker"
NAME = "app.kubernetes.io/name"
WORKER = {NAME: "ldp-worker"}
DNS = {("UDP", 53), ("TCP", 53)}
HTTP = schema.Http().port

Manifest = dict[str, Any]


@functools.cache
def kustomized(folder: Path) -> list[Manifest]:
    """Output of kubectl for a folder."""
    command = [Path(sys.executable).parent / "kubectl", "kustomize", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(YAML(typ="safe").load_all(done.stdout))


def rendered(overlay: str) -> list[Manifest]:
    return kustomized(FOLDER / "overlays" / overlay)


def test_an_overlay_of_the_page_sets_the_image(tmp_path: Path) -> None:
    for folder in (FOLDER, GRAFANA, ROOT / "deploy/prometheus"):
        shutil.copytree(folder, tmp_path / folder.name)
    mine = tmp_path / "kubernetes" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(block("operate/kubernetes", "# mine/"), encoding="utf-8")
    shutil.copy(FOLDER / "overlays/production/worker.toml", mine)
    images = re.findall(r"'image': '([^']*ldp-worker[^']*)'", str(kustomized(mine)))
    assert {*images} == {f"registry.mine.example/ldp-worker:{PROJECT['version']}"}


def all_of(overlay: str, kind: str) -> list[Manifest]:
    return [manifest for manifest in rendered(overlay) if manifest["kind"] == kind]


def one(overlay: str, kind: str, name: str = "ldp-worker") -> Manifest:
    (found,) = (manifest for manifest in all_of(overlay, kind) if manifest["metadata"]["name"] == name)
    return found


def configuration(overlay: str) -> Manifest:
    """The ConfigMap with the workers' files, whose name ends in a hash of them."""
    (found,) = (m for m in all_of(overlay, "ConfigMap") if m["metadata"]["name"].startswith("ldp-worker-"))
    return found


def spec(overlay: str, name: str = "ldp-worker") -> Manifest:
    """A pod's specification."""
    return dict(one(overlay, "StatefulSet", name)["spec"]["template"]["spec"])


def worker(overlay: str) -> Manifest:
    """The worker's container."""
    (found,) = spec(overlay)["containers"]
    return dict(found)


def all_containers() -> Iterator[tuple[str, Manifest]]:
    for overlay in OVERLAYS:
        for manifest in all_of(overlay, "StatefulSet"):
            inner = manifest["spec"]["template"]["spec"]
            for container in [*inner.get("initContainers", []), *inner["containers"]]:
                yield f"{overlay}: {manifest['metadata']['name']}/{container['name']}", container


def of_image(variable: str) -> str:
    """A variable as the image sets it."""
    (value,) = re.findall(rf"\b{variable}=(\S+)", IMAGE)
    return str(value)


# --- what kubectl makes of them, and whether a cluster knows every field -------------------------------------------


def validate(manifest: Manifest, version: str) -> None:
    """Raises if a manifest has a field that its kind has not, or a value of another type."""
    own = f"{manifest['apiVersion']} {manifest['kind']}"
    if own in CRDS:
        jsonschema.Draft202012Validator(CRDS[own]).validate(manifest)
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_field_exists_in_the_schema_of_its_kind(overlay: str, version: str) -> None:
    kinds = {manifest["kind"] for manifest in rendered(overlay)}
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy"} <= kinds
    own = {"PodMonitor", "PrometheusRule", "ScaledObject", "TriggerAuthentication"}
    assert kinds & own == (own if overlay == "production" else set())
    for manifest in rendered(overlay):
        validate(manifest, version)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("StatefulSet", "spec.template.spec.containers.0.livenessProbe"),
        ("PrometheusRule", "spec.groups.0.rules.0"),
        ("ScaledObject", "spec.triggers.0"),
    ],
)
def test_a_misspelt_field_is_detected(kind: str, path: str) -> None:
    manifest = json.loads(json.dumps(all_of("production", kind)[0]))
    validate(manifest, VERSIONS[-1])
    node = manifest
    for step in path.split("."):
        node = node[int(step) if step.isdigit() else step]
    node["mispelt"] = 1
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(manifest, VERSIONS[-1])


# --- the configuration ---------------------------------------------------------------------------------------------


def environment(overlay: str) -> dict[str, str]:
    """The variables of the first worker: the pod's values replace those of the image."""
    found = dict(re.findall(r"\b(LDP_WORKER_\w+)=(\S+)", IMAGE.partition("USER")[0]))
    for variable in worker(overlay)["env"]:
        if "valueFrom" in variable:
            assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
        found[variable["name"]] = variable.get("value", "ldp-worker-0")
    return found


def secrets_of(overlay: str) -> set[str]:
    """The files of the Secret that configuration and environment name."""
    files = configuration(overlay)
    said = "\n".join([*files["data"].values(), *environment(overlay).values()])
    return set(re.findall(rf"{SECRETS}/([\w.-]+)", said))


def laid_out(overlay: str, folder: Path) -> dict[str, str]:
    """Writes the pod's files to a folder, with test secrets; returns the matching environment."""
    files = configuration(overlay)
    for name, text in files["data"].items():
        (folder / name).write_text(text.replace(SECRETS, str(folder)), encoding="utf-8")
    for name in secrets_of(overlay):
        is_ca = name.endswith(".crt")
        text = Path(certifi.where()).read_text(encoding="utf-8") if is_ca else f"the {name}\n"
        (folder / name).write_text(text, encoding="utf-8")
    mounts = {mount["name"]: mount["mountPath"] for mount in worker(overlay)["volumeMounts"]}
    return {
        name: value.replace(SECRETS, str(folder)).replace(mounts["config"], str(folder))
        for name, value in environment(overlay).items()
    }


def loaded(overlay: str, folder: Path) -> config.Config:
    """The configuration as the first worker of an overlay reads it; a key that there is not is refused."""
    variables = laid_out(overlay, folder)
    return config.load(Path(variables[config.FILE_VARIABLE]), variables)


def brokers_ports(found: config.Config) -> set[int]:
    return {int(broker.rpartition(":")[2]) for broker in found.kafka.bootstrap_servers}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_check_reads_every_key_and_every_variable(
    overlay: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in laid_out(overlay, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(check_kafka, "look", lambda *_: ([], None, {}, {}))  # without a listener
    monkeypatch.setattr(check_redis, "look", lambda *_: [])
    done = CliRunner().invoke(cli.cli, ["check", "--json"])
    said = {finding["subject"]: finding for finding in json.loads(done.stdout)}
    assert said["configuration"]["level"] == "ok"
    assert "serving colours (olh, ε = 1, d = 3)" in said["configuration"]["text"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_configuration_is_mounted_at_the_path_of_the_image(overlay: str) -> None:
    files = configuration(overlay)
    file = Path(of_image("LDP_WORKER_CONFIG"))
    assert file.name in files["data"]
    mounts = {mount["name"]: mount for mount in worker(overlay)["volumeMounts"]}
    assert mounts["config"] == {"name": "config", "mountPath": str(file.parent), "readOnly": True}
    volumes = {volume["name"]: volume for volume in spec(overlay)["volumes"]}
    assert volumes["config"]["configMap"] == {"name": files["metadata"]["name"]}
    assert re.fullmatch(
        r"ldp-worker-\w{10}", files["metadata"]["name"]
    )  # another file, another name: a rollout


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_worker_has_a_stable_name(overlay: str, tmp_path: Path) -> None:
    assert loaded(overlay, tmp_path).kafka.member == "ldp-worker-0"
    # a dead worker's successor has its name: only a StatefulSet does this
    assert one(overlay, "StatefulSet")["spec"]["serviceName"] == one(overlay, "Service")["metadata"]["name"]


def test_production_uses_tls_and_secret_files(tmp_path: Path) -> None:
    found = loaded("production", tmp_path)
    assert (found.kafka.security_protocol, found.kafka.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert schema.secret(found.kafka.sasl_password) == "the kafka-password"
    assert schema.secret(found.redis.password) == "the redis-password"
    assert found.kafka.ssl_cafile == tmp_path / "kafka-ca.crt"
    assert found.redis.url.startswith("rediss://")
    assert found.redis.ssl_cafile == tmp_path / "redis-ca.crt"
    names = secrets_of("production")
    (volume,) = (v for v in spec("production")["volumes"] if "secret" in v)
    mount = {"name": volume["name"], "mountPath": SECRETS, "readOnly": True}
    assert mount in worker("production")["volumeMounts"]
    assert volume["secret"]["defaultMode"] == 0o440
    create = re.search(r"create secret generic ldp-worker (.*?)\nkubectl", PAGE, re.DOTALL)
    assert create is not None
    assert volume["secret"]["secretName"] == "ldp-worker"
    assert set(re.findall(r"--from-file=([\w.-]+?)(?:=| |$)", create[1], re.MULTILINE)) == names
    assert "secret" not in json.dumps(spec("try-out")["volumes"])


def test_no_secret_is_in_a_manifest() -> None:
    for overlay in OVERLAYS:
        assert not all_of(overlay, "Secret")
        assert not [
            v for v in worker(overlay)["env"] if "PASSWORD" in v["name"] and not v["name"].endswith("_FILE")
        ]


# --- the pods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_use_endpoints_of_the_worker(overlay: str) -> None:
    health = server.HttpServer(
        "127.0.0.1",
        0,
        CollectorRegistry(),
        lambda: (True, {"what": "health"}),
        lambda: (True, {"what": "ready"}),
    )
    said = {}
    try:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = worker(overlay)[probe]["httpGet"]
            assert asked["port"] == "http"
            url = f"http://127.0.0.1:{health.server_port}{asked['path']}"
            with urllib.request.urlopen(url, timeout=10) as reply:
                said[probe] = json.load(reply)["what"]
    finally:
        health.shutdown()
    # readiness fails while a broker is away, and a restart does not help
    assert said == {"startupProbe": "health", "livenessProbe": "health", "readinessProbe": "ready"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_and_termination_have_enough_time(overlay: str) -> None:
    start = worker(overlay)["startupProbe"]
    assert (
        start["periodSeconds"] * start["failureThreshold"] >= 120
    )  # half a minute of compiling, on a busy node
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert (
            worker(overlay)[probe]["timeoutSeconds"] > processes._ANSWER_SECONDS
        )  # the slowest of several processes
    longest = max(loop.STOP_SECONDS, processes._STOP_SECONDS)
    assert spec(overlay)["terminationGracePeriodSeconds"] > 2 * longest


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_are_confined(overlay: str) -> None:
    """By the Pod Security Standard "restricted", which the namespaces require."""
    (namespace,) = all_of(overlay, "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for manifest in all_of(overlay, "StatefulSet"):
        inner = manifest["spec"]["template"]["spec"]
        assert inner["automountServiceAccountToken"] is False
        of_pod = inner["securityContext"]
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["runAsUser"] == of_pod["runAsGroup"] == of_pod["fsGroup"] > 0
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
    for name, container in all_containers():
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert own.get("readOnlyRootFilesystem", False) is (not name.endswith("kafka/kafka")), name
        assert "privileged" not in own
    assert f"USER {spec(overlay)['securityContext']['runAsUser']}:" in IMAGE


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_the_kernel_cache_is_writable(overlay: str) -> None:
    folder = of_image("NUMBA_CACHE_DIR")
    volumes = {volume["name"]: volume for volume in spec(overlay)["volumes"]}
    assert "emptyDir" in volumes["kernels"]
    for container in [worker(overlay), *spec(overlay)["initContainers"]]:
        written = {m["name"]: m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        assert set(written) == {"kernels"}, container["name"]
        # the one that fills it has to see the image's own
        assert (written["kernels"] == folder) is (container["name"] != "kernels")
    (fill,) = (container for container in spec(overlay)["initContainers"] if container["name"] == "kernels")
    (mount,) = fill["volumeMounts"]
    assert fill["command"] == ["cp", "-rn", f"{folder}/.", mount["mountPath"]]


def test_filling_keeps_kernels_compiled_by_a_worker(tmp_path: Path) -> None:
    image, pods = tmp_path / "image", tmp_path / "pods"
    (image / "of_a_module").mkdir(parents=True)
    (pods / "of_a_module").mkdir(parents=True)
    (image / "of_a_module/one.nbi").write_text("the image's")
    (image / "of_a_module/two.nbi").write_text("the image's")
    (pods / "of_a_module/one.nbi").write_text("its own")
    (fill,) = (
        container for container in spec("production")["initContainers"] if container["name"] == "kernels"
    )
    command = [word.replace(of_image("NUMBA_CACHE_DIR"), str(image)) for word in fill["command"][:-1]]
    subprocess.run([*command, pods], check=True)
    assert (pods / "of_a_module/one.nbi").read_text() == "its own"
    assert (pods / "of_a_module/two.nbi").read_text() == "the image's"


def test_memory_limits_cover_the_fetch_buffers(tmp_path: Path) -> None:
    units = {"Mi": 1 << 20, "Gi": 1 << 30}
    for overlay in OVERLAYS:
        found = loaded(overlay, tmp_path)
        needed = (512 << 20) + len(found.streams) * found.kafka.memory_bytes
        limit = worker(overlay)["resources"]["limits"]["memory"]
        assert int(limit[:-2]) * units[limit[-2:]] >= needed
    for name, container in all_containers():
        assert {"cpu", "memory"} == set(container["resources"]["requests"]), name
        assert {"memory"} == set(container["resources"]["limits"]), (
            name
        )  # throttled, a worker misses its heartbeats


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_commands_exist_with_their_options(overlay: str) -> None:
    asked = [c for c in [worker(overlay), *spec(overlay)["initContainers"]] if "args" in c]
    for container in asked:
        assert "command" not in container  # which would replace the image's entry point
        name, *arguments = container["args"]
        known = {option for parameter in cli.cli.commands[name].params for option in parameter.opts}
        assert {argument for argument in arguments if argument.startswith("--")} <= known
    assert len(asked) == (2 if overlay == "try-out" else 1)


def test_images_have_the_tested_versions() -> None:
    images = {name: container["image"] for name, container in all_containers()}
    kafka, redis = images.pop("try-out: kafka/kafka"), images.pop("try-out: redis/redis")
    assert (kafka, redis) == (shared.KAFKA_IMAGE, shared.REDIS_IMAGE)
    of_production = {image for name, image in images.items() if name.startswith("production")}
    assert of_production == {f"registry.example.com/ldp-worker:{PROJECT['version']}"}
    assert set(images.values()) - of_production == {f"ldp-worker:{PROJECT['version']}"}
    assert f"ldp-worker:{PROJECT['version']}" in PAGE


# --- how many, where, and how they change --------------------------------------------------------------------------


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_match_only_the_workers(overlay: str) -> None:
    stateful = one(overlay, "StatefulSet")["spec"]
    assert stateful["selector"]["matchLabels"] == WORKER
    assert WORKER.items() <= stateful["template"]["metadata"]["labels"].items()
    assert one(overlay, "Service")["spec"]["selector"] == WORKER
    assert one(overlay, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == WORKER
    for spread in spec(overlay)["topologySpreadConstraints"]:
        assert spread["labelSelector"]["matchLabels"] == WORKER
    for policy in all_of(overlay, "NetworkPolicy"):
        (name,) = policy["spec"]["podSelector"]["matchLabels"].values()
        labels = one(overlay, "StatefulSet", name)["spec"]["template"]["metadata"]["labels"]
        assert labels[NAME] == name
    if overlay == "production":
        assert one(overlay, "PodMonitor")["spec"]["selector"]["matchLabels"] == WORKER


def test_keda_queries_the_lag_of_every_stream(tmp_path: Path) -> None:
    found = loaded("production", tmp_path)
    triggers = [trigger["metadata"] for trigger in one("production", "ScaledObject")["spec"]["triggers"]]
    assert {(t["consumerGroup"], t["topic"]) for t in triggers} == {
        (found.consumer_group(served.name), served.topic) for served in found.streams
    }
    for trigger in triggers:
        assert trigger["bootstrapServers"].split(",") == found.kafka.bootstrap_servers
        assert trigger["sasl"] == str(found.kafka.sasl_mechanism).lower().replace("-sha-", "_sha")
        assert trigger["tls"] == "enable"
        assert all(isinstance(value, str) for value in trigger.values())


# --- the network ---------------------------------------------------------------------------------------------------


def allowed(overlay: str, direction: str) -> list[Manifest]:
    """Traffic that the workers' policies allow in a direction."""
    return [
        rule
        for policy in all_of(overlay, "NetworkPolicy")
        if policy["spec"]["podSelector"]["matchLabels"] == WORKER
        for rule in policy["spec"].get(direction, [])
    ]


def ports(found: list[Manifest]) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for rule in found for port in rule["ports"]}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_workers_reach_only_kafka_redis_and_dns(overlay: str, tmp_path: Path) -> None:
    found = loaded(overlay, tmp_path)
    needed = brokers_ports(found) | {int(urlsplit(found.redis.url).port or 0)}
    assert ports(allowed(overlay, "egress")) == DNS | {("TCP", port) for port in needed}
    base = one(overlay, "NetworkPolicy")["spec"]
    assert base["policyTypes"] == ["Ingress", "Egress"]  # ports without a policy are closed
    for rule in allowed(overlay, "egress"):
        if ports([rule]) <= DNS:
            assert rule["to"] == [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
            ]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_rule_of_egress_names_a_destination(overlay: str) -> None:
    for rule in allowed(overlay, "egress"):
        for to in rule["to"]:
            assert {*to} in ({"ipBlock"}, {"podSelector"}, {"namespaceSelector"})
            if "ipBlock" in to:
                assert ip_network(to["ipBlock"]["cidr"]).prefixlen >= 24


def test_only_prometheus_reaches_a_worker() -> None:
    assert allowed("try-out", "ingress") == []
    (rule,) = allowed("production", "ingress")
    assert ports([rule]) == {("TCP", HTTP)}
    assert rule["from"] == [
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    ]


# --- monitoring
# -------------------------------------------------------------------------------------------------------


def test_the_alerts_equal_the_prometheus_rules() -> None:
    assert rules.WRITTEN.read_text(encoding="utf-8") == rules.manifest(
        rules.RULES.read_text(encoding="utf-8")
    ), "python -m deploy.kubernetes.rules writes them"
    assert one("production", "PrometheusRule")["spec"] == YAML(typ="safe").load(rules.RULES)


def test_the_dashboards_are_labelled_for_the_grafana_sidecar() -> None:
    """On their own, for Grafana's namespace, and with the workers; under stable names."""
    shipped = {path.name: path.read_text(encoding="utf-8") for path in DASHBOARDS.iterdir()}
    production = [m for m in all_of("production", "ConfigMap") if m is not configuration("production")]
    alone = kustomized(GRAFANA)
    for found in (production, alone):
        assert [m["metadata"]["labels"] for m in found] == [{"grafana_dashboard": "1"}] * len(shipped)
        assert {m["metadata"]["name"]: m["data"] for m in found} == {
            Path(name).stem: {name: text} for name, text in shipped.items()
        }
    for manifest in alone:
        assert "namespace" not in manifest["metadata"]
        validate(manifest, VERSIONS[-1])
        # kubectl apply keeps all that it applied in an annotation
        assert len(json.dumps(manifest)) < 256 << 10
    assert len(all_of("try-out", "ConfigMap")) == 1


def test_prometheus_scrapes_the_job_of_the_alerts() -> None:
    monitor = one("production", "PodMonitor")["spec"]
    labels = one("production", "StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert labels[monitor["jobLabel"]] == prometheus.JOB
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == worker("production")["ports"][0]["name"]
    health = server.HttpServer("127.0.0.1", 0, CollectorRegistry(), lambda: (True, {}), lambda: (True, {}))
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{health.server_port}{endpoint['path']}", timeout=10
        ) as reply:
            assert reply.headers["Content-Type"].startswith("text/plain")
    finally:
        health.shutdown()


# --- the gateway and the shuffler ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Manifest]:
    """Manifests that the component adds to production, by kind and name."""
    folder = tmp_path_factory.mktemp("uploads")
    for source in (FOLDER, GRAFANA, ROOT / "deploy/prometheus"):
        shutil.copytree(source, folder / source.name)
    overlay = folder / "kubernetes/overlays/production"
    file = overlay / "kustomization.yaml"
    keda = "  - ../../components/keda\n"
    added = "  - ../../components/uploads\n  - ../../components/ohttp\n"
    text = file.read_text(encoding="utf-8").replace(keda, keda + added)
    file.write_text(text, encoding="utf-8")
    before = {
        (manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in rendered("production")
    }
    after = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in kustomized(overlay)}
    assert {key: after[key] for key in before} == before
    return {key: manifest for key, manifest in after.items() if key not in before}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_uploads_have_fields_of_their_kinds(
    uploads: dict[tuple[str, str], Manifest], version: str
) -> None:
    for manifest in uploads.values():
        validate(manifest, version)


@pytest.mark.parametrize(("name", "command"), [("ldp-gateway", "gateway"), ("ldp-shuffler", "shuffle")])
def test_pods_of_uploads_are_confined_as_workers(
    uploads: dict[tuple[str, str], Manifest], name: str, command: str
) -> None:
    deployment = uploads["Deployment", name]["spec"]
    pod, own = deployment["template"]["spec"], spec("production")
    same = ("securityContext", "automountServiceAccountToken", "serviceAccountName", "initContainers")
    assert {key: pod[key] for key in same} == {key: own[key] for key in same}
    (container,), of_worker = pod["containers"], worker("production")
    same = ("securityContext", "image", "startupProbe", "livenessProbe", "readinessProbe", "volumeMounts")
    if command == "gateway":
        keys, mount, volume = container["env"].pop(), container["volumeMounts"].pop(), pod["volumes"].pop()
        assert keys["name"] == "LDP_WORKER_GATEWAY__OHTTP__KEY_FILES"
        assert Path(keys["value"]).parent == Path(mount["mountPath"])
        assert (mount["name"], mount["readOnly"]) == (volume["name"], True)
        assert volume["secret"] == {"secretName": "ldp-gateway-ohttp", "defaultMode": 0o440}
    assert {key: container[key] for key in same} == {key: of_worker[key] for key in same}
    assert pod["volumes"] == own["volumes"]
    assert container["args"] == [command]
    assert command in cli.cli.commands
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"] == labels == {NAME: name}
    (variable,) = container["env"]
    assert variable in of_worker["env"]
    numbers = {port["name"]: port["containerPort"] for port in container["ports"]}
    gateway = schema.Gateway()
    expected = (
        {"uploads": gateway.port, "http": gateway.metrics_port} if command == "gateway" else {"http": HTTP}
    )
    assert numbers == expected
    down = next(rule for rule in alert_rules() if rule.get("alert") == "LdpUploadsDown")
    monitor = uploads["PodMonitor", "ldp-uploads"]["spec"]
    assert monitor["jobLabel"] == NAME
    for selected in (monitor["selector"], uploads["NetworkPolicy", "ldp-uploads"]["spec"]["podSelector"]):
        (match,) = selected["matchExpressions"]
        assert (match["key"], name in match["values"]) == (NAME, True)
    assert re.search(rf'"[^"]*\b{name}\b[^"]*"', down["expr"])


def test_uploads_reach_the_brokers_of_the_workers_only(uploads: dict[tuple[str, str], Manifest]) -> None:
    own = uploads["NetworkPolicy", "ldp-uploads"]["spec"]["egress"]
    redis = 6380
    assert [rule for rule in allowed("production", "egress") if ("TCP", redis) not in ports([rule])] == own
    (ingress,) = uploads["NetworkPolicy", "ldp-gateway"]["spec"]["ingress"]
    assert [port["port"] for port in ingress["ports"]] == ["uploads"]
