"""Redis servers with a login or TLS, replicas, Sentinels and clusters."""

import contextlib
import socket
from pathlib import Path
from typing import Any, Self

import redis

from deploy.local.services import Server, free_ports, redis_program
from tests.support.harness.authority import Authority
from tests.support.harness.waiting import until

SAFE = {
    "bind": "127.0.0.1",
    "save": "",
    "maxmemory-policy": "noeviction",
    "appendonly": "yes",
    "appendfsync": "no",
}


class Redises:
    """Servers below the folder of `Services`; a context manager."""

    def __init__(self, folder: Path, name: str, authority: Authority | None = None) -> None:
        self._folder, self._name, self._authority = folder, name, authority
        self.servers: list[Server] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.servers:
            server.kill()

    def start(
        self, *words: str, port: int = 0, tls_port: int = 0, program: str | None = None, **settings: Any
    ) -> Server:
        """Starts a server and waits until it accepts connections."""
        if not port and not tls_port:
            (port,) = free_ports(1)
        name = f"{self._name}-{len(self.servers)}"
        data = self._folder / name
        data.mkdir()
        options = (SAFE if not words else {}) | {"port": port, "dir": data}
        if tls_port:
            assert self._authority is not None
            at = self._authority.folder
            options |= {"tls-port": tls_port, "tls-cert-file": at / "server.pem"}
            options |= {
                "tls-key-file": at / "server.key",
                "tls-ca-cert-file": at / "ca.pem",
                "tls-auth-clients": "no",
            }
        options |= {key.replace("_", "-"): value for key, value in settings.items()}
        command = [program or redis_program(), *words]
        for key, value in options.items():
            command += [f"--{key}", *map(str, value if isinstance(value, tuple) else [value])]
        server = Server(
            name, f"127.0.0.1:{port or tls_port}", port or tls_port, command, self._folder, _listens, 30
        )
        self.servers.append(server)
        server.start()
        return server

    def sentinel(self, *lines: str, port: int = 0, tls_port: int = 0, **settings: Any) -> Server:
        """Starts a Sentinel with these lines of configuration."""
        file = self._folder / f"{self._name}-{len(self.servers)}.conf"
        file.write_text("\n".join(lines) + "\n")
        return self.start(str(file), "--sentinel", port=port, tls_port=tls_port, **settings)

    def cluster(self, masters: int, **settings: Any) -> list[Server]:
        """Starts a cluster of masters and one replica each, with and without TLS."""
        ports = iter(free_ports(6 * masters))
        kept: dict[str, Any] = {"cluster_node_timeout": 5000, "cluster_replica_validity_factor": 0}
        kept |= {"tls_cluster": "yes", "tls_replication": "yes"}
        found = []
        for _ in range(2 * masters):
            port, tls_port, bus = next(ports), next(ports), next(ports)
            about: dict[str, Any] = {
                "cluster_enabled": "yes",
                "cluster_config_file": f"nodes-{port}",
                "cluster_port": bus,
            }
            found.append(
                (self.start(port=port, tls_port=tls_port, **kept, **about, **settings), tls_port, bus)
            )
        servers = [server for server, _, _ in found]
        with contextlib.ExitStack() as stack:
            nodes: list[Any] = [
                stack.enter_context(redis.Redis(port=server.port, password=settings.get("requirepass")))
                for server in servers
            ]
            for number, node in enumerate(nodes):
                node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                if number < masters:
                    share = (16384 * number // masters, 16384 * (number + 1) // masters - 1)
                    node.execute_command("CLUSTER ADDSLOTSRANGE", *share)
                node.execute_command("CLUSTER MEET", "127.0.0.1", *found[0][1:])
            until(lambda: all(len(_lines(node)) == len(nodes) for node in nodes), "all nodes know each other")
            for master, replica in zip(nodes[:masters], nodes[masters:], strict=True):
                name = master.execute_command("CLUSTER MYID").decode()
                until(lambda: _replicates(replica, name), "a replica")  # noqa: B023
            until(
                lambda: all(node.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for node in nodes),
                "the cluster is whole",
            )
            until(lambda: all(synchronous(node) for node in nodes[masters:]), "all replicas follow")
        return servers


def _lines(node: Any) -> Any:
    return [
        each for each in node.execute_command("CLUSTER NODES").values() if "handshake" not in each["flags"]
    ]


def _replicates(node: Any, name: str) -> bool:
    """Makes a node a replica once its master is known."""
    try:
        node.execute_command("CLUSTER REPLICATE", name)
    except redis.ResponseError:
        return False
    return True


def synchronous(replica: "redis.Redis") -> bool:
    """Returns whether a replica is in sync."""
    return replica.info("replication").get("master_link_status") == "up"


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False
