"""The main path over each kind of login and encryption of the brokers."""

import contextlib

import pytest
from click.testing import CliRunner

from tests.support.harness import Sending, World, until
from worker import check
from worker.cli import cli

pytestmark = [pytest.mark.integration, pytest.mark.long]

WAYS = [
    ("PLAINTEXT", None),
    ("SSL", None),
    ("MTLS", None),
    ("LOGIN", "PLAIN"),
    ("BOTH", "PLAIN"),
    ("LOGINS", "PLAIN"),
    ("LOGINS", "SCRAM-SHA-256"),
    ("LOGINS", "SCRAM-SHA-512"),
    ("LOGINS", "OAUTHBEARER"),
]
RECORDS, REPORTS = 60, 3


def over(secure, folder, listener, mechanism=None, **changes):
    """Returns a stream whose workers and commands use one listener."""
    keys = secure.client(listener, mechanism or "PLAIN") | changes
    keys = {key: value for key, value in keys.items() if value is not None}
    there, redis = keys.pop("bootstrap_servers"), secure.running.redis.address
    folder.mkdir()
    return World(secure.running.kafka.address, redis, folder, brokers=there, client=keys)


@pytest.fixture(scope="module")
def worlds(request, secure, tmp_path_factory):
    """A stream and a worker for each selected listener."""
    tests = (item for item in request.session.items if item.path == request.path)
    ways = [item.callspec.params["way"] for item in tests if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("transports")
    with contextlib.ExitStack() as stack:
        found = {
            way: stack.enter_context(over(secure, folder / "-".join(map(str, way)), *way)) for way in ways
        }
        for world in found.values():
            world.launch()
        yield found


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
def test_reports_are_counted_over_every_transport(worlds, way, capsys):
    world, (listener, mechanism) = worlds[way], way
    world.start(0)
    producer = world.open_producer(**world.config.kafka.client())
    world.send(RECORDS, REPORTS, producer=producer)
    world.put(b"no frame", 0, producer)
    snapshot = world.covered()
    world.assert_right(snapshot)
    assert world.totals()["rejected"] == {"version": 1}
    errors = [finding for finding in check.findings(world.config) if finding.level is check.Level.ERROR]
    assert errors == []
    for command, *options in (("watch", "--once"), ("audit",), ("check",)):
        result = CliRunner().invoke(cli, [command, "--config", str(world.toml), *options])
        assert result.exit_code == 0, result.output
        if command == "watch":
            assert f"{world.n:,} reports" in " ".join(result.output.split())
    protocol = world.config.kafka.security_protocol + (
        " + certificate" if listener in ("MTLS", "BOTH") else ""
    )
    with capsys.disabled():
        print(
            f"\nmatrix: {protocol:24} {mechanism or '-':14} counted {snapshot.reports} of {world.n}  audit equal"
        )


def test_tokens_are_renewed_without_interruption(secure, tmp_path, monkeypatch):
    monkeypatch.setattr(secure.tokens, "seconds", 20)
    with over(secure, tmp_path / "renewed", "LOGINS", "OAUTHBEARER", sasl_oauthbearer_scope=None) as world:
        (worker,) = world.start()
        given = secure.tokens.given
        with Sending(world) as sending:
            until(lambda: secure.tokens.given >= given + 2, "two tokens more")
            sending.more()
        world.assert_right(world.covered())
        assert len(worker.events("partition.claimed")) == world.partitions
        for event in ("kafka.unavailable", "poll.retry", "serve.retry", "snapshot.retry"):
            assert worker.events(event) == []
