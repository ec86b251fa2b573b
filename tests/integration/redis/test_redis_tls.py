"""Redis with TLS and a login: the main path and connection errors."""

import contextlib
import secrets
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.local.services import free_ports
from tests.support.harness import World, until
from tests.support.harness.authority import Authority
from tests.support.harness.matrix import main_path
from tests.support.harness.redises import Redises
from worker import check, config
from worker.kafka.client import brokers

pytestmark = [pytest.mark.integration, pytest.mark.long]

PASSWORD, WRONG = (f"{word}-{secrets.token_hex(8)}" for word in ("right", "wrong"))


@pytest.fixture(scope="module")
def ways(local_services, tmp_path_factory):
    """The ports of servers by login and TLS, and the certificates."""
    folder = tmp_path_factory.mktemp("redis-tls")
    authority, other = Authority(folder / "ca"), Authority(folder / "other")
    authority.sign("server", "IP:127.0.0.1")
    authority.sign("elsewhere", "DNS:redis.example")
    authority.sign("expired", "IP:127.0.0.1", days=-1)
    authority.sign("client", "DNS:client")
    authority.encrypt("client", "word")
    other.sign("client", "DNS:client")
    with Redises(local_services.folder, "tls", authority) as redises:
        plain, login, tls, both, elsewhere, expired = free_ports(6)
        redises.start(port=plain)
        redises.start(port=login, requirepass=PASSWORD)
        redises.start(tls_port=tls)
        user = ("worker", "on", f">{PASSWORD}", "~*", "+@all")
        redises.start(tls_port=both, tls_auth_clients="yes", requirepass=secrets.token_hex(8), user=user)
        for port, name in ((elsewhere, "elsewhere"), (expired, "expired")):
            files = {"tls_cert_file": folder / f"ca/{name}.pem", "tls_key_file": folder / f"ca/{name}.key"}
            redises.start(tls_port=port, **files)
        yield SimpleNamespace(folder=folder, **{k: v for k, v in locals().items() if isinstance(v, int)})


def ca(ways, name="ca"):
    return {"ssl_cafile": str(ways.folder / name / "ca.pem")}


def with_key(ways, whose="ca"):
    folder = ways.folder / whose
    return ca(ways) | {"ssl_certfile": str(folder / "client.pem"), "ssl_keyfile": str(folder / "client.key")}


def test_reports_are_counted_over_every_redis_connection(ways, local_services, tmp_path):
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    files = {"LDP_WORKER_REDIS__PASSWORD_FILE": str(password)}
    found = {
        "redis://, password of a file": (f"redis://127.0.0.1:{ways.login}/0", {}, files),
        "rediss://, private authority": (f"rediss://127.0.0.1:{ways.tls}/1", ca(ways), {}),
        "rediss://, client certificate, user, files": (
            f"rediss://worker@127.0.0.1:{ways.both}/0",
            with_key(ways),
            files,
        ),
    }
    with contextlib.ExitStack() as stack:
        worlds = {}
        for way, (url, store, environ) in found.items():
            (tmp_path / str(len(worlds))).mkdir()
            worlds[way] = stack.enter_context(
                World(
                    *(local_services.kafka.address, url, tmp_path / str(len(worlds))),
                    partitions=2, store=store, environ=environ,
                )
            )  # fmt: skip
            worlds[way].launch()
        for world in worlds.values():
            main_path(world)
            for worker in world.workers:
                assert PASSWORD not in {*worker.log.read_text().split('"')}


CASES = {
    "a wrong password": (
        "redis://127.0.0.1:{login}",
        lambda ways: {"password": WRONG},
        "AuthenticationError: invalid username-password pair",
        "correct redis.password, or the user in redis.url",
    ),
    "no password": (
        "redis://127.0.0.1:{login}",
        lambda ways: {},
        "AuthenticationError: HELLO must be called with the client already authenticated",
        "Redis requires a password: set redis.password",
    ),
    "another host": (
        "rediss://127.0.0.1:{elsewhere}",
        ca,
        "certificate is not valid for '127.0.0.1'",
        "use the host name of the certificate in redis.url, and in the addresses of Sentinels or the cluster",
    ),
    "an expired certificate": (
        "rediss://127.0.0.1:{expired}",
        ca,
        "certificate has expired",
        "renew the certificate of Redis",
    ),
    "another authority": (
        "rediss://127.0.0.1:{tls}",
        lambda ways: ca(ways, "other"),
        "certificate verify failed",
        "set redis.ssl_cafile to the authority that signed the certificate of Redis",
    ),
    "no certificate": (
        "rediss://worker@127.0.0.1:{both}",
        lambda ways: ca(ways) | {"password": PASSWORD},
        "ConnectionError",
        "Redis rejects or requires a client certificate: correct redis.ssl_certfile and redis.ssl_keyfile",
    ),
    "no TLS": (
        "redis://127.0.0.1:{tls}",
        lambda ways: {},
        "ConnectionError",
        "may require TLS: write rediss:// in redis.url",
    ),
    "TLS to a plaintext port": (
        "rediss://127.0.0.1:{plain}",
        ca,
        "Timeout connecting to server",
        "no answer over TLS: if this port does not use TLS, write redis:// in redis.url, or correct the port",
    ),
    "nobody": (
        "redis://127.0.0.1:{none}",
        lambda ways: {},
        "Connection refused",
        "start Redis, or correct redis.url and redis.password",
    ),
    "a server, not a cluster": (
        "redis+cluster://127.0.0.1:{plain}",
        lambda ways: {},
        "Cluster mode is not enabled",
        "this is not a cluster: write redis:// in redis.url",
    ),
    "a server, no Sentinel": (
        "redis+sentinel://127.0.0.1:{plain}/mymaster",
        lambda ways: {},
        "unknown command 'SENTINEL'",
        "this is not a Sentinel: correct the ports in redis.url, or write redis:// there",
    ),
}


def written(folder: Path, url: str, **redis: str) -> Path:
    toml = folder / "worker.toml"
    keys = "".join(f'{key} = "{value}"\n' for key, value in redis.items())
    stream = '[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
    kafka = f'[kafka]\nbootstrap_servers = "127.0.0.1:{free_ports(1)[0]}"\n[http]\nport = 0\n'
    toml.write_text(f'{kafka}[redis]\nurl = "{url}"\n{keys}{stream}')
    return toml


@pytest.mark.parametrize("case", CASES)
def test_connection_errors_name_the_remedy(ways, case, tmp_path, monkeypatch):
    monkeypatch.setattr(brokers, "TIMEOUT_SECONDS", 0.2)
    url, settings, reason, advice = CASES[case]
    ports = vars(ways) | {"none": free_ports(1)[0]}
    toml = written(tmp_path, url.format(**ports), **settings(ways))
    (found,) = [f for f in check.findings(config.load(toml, {})) if f.subject == "redis"]
    assert found.level is check.Level.ERROR
    assert reason in found.text
    assert found.text.startswith("no answer from redis" if case == "nobody" else "rejected by redis")
    assert advice in found.hint
    assert not any(word in found.text + found.hint for word in (PASSWORD, WRONG))


@pytest.mark.parametrize(
    ("redis", "said"),
    [
        ({"ssl_cafile": "none.pem"}, "redis.ssl_cafile: there is no such file"),
        ({"ssl_keyfile": "ca/client.key"}, "redis.ssl_keyfile: it needs redis.ssl_certfile, too"),
        (
            {"ssl_certfile": "ca/client.pem", "ssl_keyfile": "ca/server.key"},
            "redis.ssl_keyfile: not the key of the certificate in redis.ssl_certfile",
        ),
        (
            {"ssl_certfile": "ca/client.pem", "ssl_keyfile": "ca/client.encrypted"},
            "redis.ssl_keyfile: an encrypted key; a key without a password is needed",
        ),
    ],
)
def test_certificate_files_are_validated_at_start(ways, redis, said):
    with pytest.raises(config.ConfigError) as fault:
        config.load(written(ways.folder, "rediss://127.0.0.1", **redis), {})
    assert said in str(fault.value)
    assert WRONG not in str(fault.value)


def test_run_names_the_remedy_and_claims_nothing_meanwhile(ways, local_services, tmp_path):
    url = f"redis://127.0.0.1:{ways.login}/2"
    with World(
        local_services.kafka.address, url, tmp_path, partitions=2, store={"password": PASSWORD}
    ) as world:
        worker = world.launch(world.configure("wrong", store={"password": WRONG}))
        until(lambda: worker.events("redis.unavailable"), "it says so")
        event = worker.events("redis.unavailable")[0]
        assert event["error"].startswith(f"rejected by redis://127.0.0.1:{ways.login}: AuthenticationError: ")
        assert event["remedy"] == "correct redis.password, or the user in redis.url"
        assert worker.alive()
        assert not world.members()
        assert WRONG not in worker.log.read_text()
        world.redis.config_set("requirepass", WRONG)
        try:
            until(worker.ready, "it serves")
        finally:
            world.redis.config_set("requirepass", PASSWORD)
