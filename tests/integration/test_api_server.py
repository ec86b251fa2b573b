"""The manifests on a real API server, which knows rules that no schema says: admission, defaults, names, quantities.

KUBEBUILDER_ASSETS names the folder of kube-apiserver and etcd, as for whoever tests operators (setup-envtest fills it).
No package brings these two, so elsewhere conftest.py leaves this file out; what schemas can say is in
unit/deploy/test_kubernetes.py.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from deploy.local.services import free_ports

ASSETS = Path(os.environ["KUBEBUILDER_ASSETS"])
OVERLAYS = Path(__file__).parents[2] / "deploy/kubernetes/overlays"
TOKEN = "of-this-test"
OWN = {"keda.sh/v1alpha1", "monitoring.coreos.com/v1"}  # which an operator brings

pytestmark = pytest.mark.integration


class Cluster:
    """An API server, as kubectl speaks to it."""

    def __init__(self, port: int) -> None:
        self._options = [
            "--server",
            f"https://127.0.0.1:{port}",
            "--insecure-skip-tls-verify",
            "--token",
            TOKEN,
        ]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """What kubectl said."""
        command = [
            Path(sys.executable).parent / "kubectl",
            "--kubeconfig",
            os.devnull,
            *self._options,
            *arguments,
        ]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)

    def apply(self, manifests: Sequence[object]) -> None:
        """Applies manifests, strictly; a warning, as of Pod Security, is a failure."""
        text = "\n".join(f"---\n{json.dumps(manifest)}" for manifest in manifests)
        done = self.kubectl("apply", "--validate=strict", "-f", "-", stdin=text)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        again = self.kubectl("diff", "-f", "-", stdin=text)
        assert again.returncode == 0, (
            again.stdout
        )  # what the server dropped or changed would be a change for ever


@contextlib.contextmanager
def started(folder: Path, name: str, *options: str) -> Iterator[None]:
    """A program of the folder, until the end of the block."""
    with (
        (folder / f"{name}.log").open("wb") as log,
        subprocess.Popen([ASSETS / name, *options], cwd=folder, stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    client, peer, port = free_ports(3)
    etcd = f"http://127.0.0.1:{client}"
    peers = f"http://127.0.0.1:{peer}"
    subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
    (folder / "tokens").write_text(f"{TOKEN},admin,admin,system:masters\n", encoding="utf-8")
    with (
        started(
            folder,
            "etcd",
            "--data-dir=etcd-data",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ),
        started(
            folder,
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--cert-dir=certificates",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            "--service-account-issuer=https://tests",
            "--service-account-key-file=key",
            "--service-account-signing-key-file=key",
            "--token-auth-file=tokens",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",  # whose controller is not here to make them
        ),
    ):
        found = Cluster(port)
        deadline = time.monotonic() + 90
        while found.kubectl("get", "--raw", "/readyz").stdout != "ok":
            assert time.monotonic() < deadline, (folder / "kube-apiserver.log").read_text()[-3000:]
            time.sleep(0.2)
        yield found


@pytest.mark.parametrize("overlay", ["try-out", "production"])
def test_an_api_server_takes_all_of_an_overlay_and_its_pods(cluster: Cluster, overlay: str) -> None:
    rendered = cluster.kubectl("kustomize", str(OVERLAYS / overlay))
    manifests = [m for m in YAML(typ="safe").load_all(rendered.stdout) if m["apiVersion"] not in OWN]
    namespace = next(m["metadata"]["name"] for m in manifests if m["kind"] == "Namespace")
    cluster.apply([m for m in manifests if m["kind"] == "Namespace"])
    cluster.apply([m for m in manifests if m["kind"] != "Namespace"])
    for stateful in (m for m in manifests if m["kind"] == "StatefulSet"):
        # no controller is here to make its pods: admission is asked for one
        template = stateful["spec"]["template"]
        claims = [claim["metadata"]["name"] for claim in stateful["spec"].get("volumeClaimTemplates", [])]
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        name = f"{stateful['metadata']['name']}-0"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": template["metadata"] | {"name": name, "namespace": namespace},
            "spec": template["spec"] | {"volumes": [*template["spec"].get("volumes", []), *volumes]},
        }
        cluster.apply([pod])
        pod["metadata"]["name"] = "unconfined"
        pod["spec"]["containers"][0]["securityContext"] |= {"allowPrivilegeEscalation": True}
        refused = cluster.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        assert 'violates PodSecurity "restricted' in refused.stderr
