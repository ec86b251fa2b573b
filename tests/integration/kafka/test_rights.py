"""Kafka rights: the documented ones are enough, and each is needed."""

import contextlib

import pytest
from click.testing import CliRunner

from tests.support.harness import World, dead_letters, until
from tests.support.harness.front import BATCH, Front
from tests.support.harness.history import history
from tests.support.harness.rights import DOCUMENTED, LIMITED, LIMITED_PASSWORD, acl, lines
from worker import check
from worker.cli import cli
from worker.kafka.client import topics

pytestmark = pytest.mark.integration


def limited(secure, folder, user, **more):
    """Returns a stream whose login has no rights."""
    keys = secure.client("LOGINS") | {"sasl_username": user, "sasl_password": LIMITED_PASSWORD}
    there, redis = keys.pop("bootstrap_servers"), secure.running.redis.address
    folder.mkdir()
    return World(
        secure.running.kafka.address, redis, folder, brokers=there, client=keys, partitions=1, **more
    )


def names(world):
    """Maps the names in the page's example to the names of the stream."""
    return {
        "colour-reports": world.topic,
        "ldp-worker-colours": world.group,
        "ldp-snapshots": world.config.snapshots.topic,
        "ldp-dead-letters": world.config.dead_letters.topic,
        "ldp-worker/ldp-snapshots/colours": world.config.transactional_id(world.name),
    }


@pytest.fixture(scope="module")
def worlds(request, secure, tmp_path_factory):
    """A stream with all rights, and one without each tested right."""
    folder = tmp_path_factory.mktemp("rights")
    tests = (item for item in request.session.items if item.path == request.path)
    lacking = {
        f"--operation {item.callspec.params['lacking']}" for item in tests if "lacking" in item.fixturenames
    }
    with contextlib.ExitStack() as stack:
        found = {}
        for user, without in zip(LIMITED, [None, *lines()], strict=False):
            if without not in {None, *lacking}:
                continue
            found[without] = world = stack.enter_context(limited(secure, folder / user, user))
            world.admin.create_acls([acl(line, user, names(world)) for line in lines() if line != without])
            world.send(20, 2)
            world.put(b"no frame")
            world.settle()
        for world in found.values():
            world.launch()
        yield found


def errors(world):
    """Returns the errors and remedies that `check` finds."""
    found = check.findings(world.config)
    return [f"{one.subject}: {one.text} -> {one.hint}" for one in found if one.level is check.Level.ERROR]


def command(world, *words):
    """Runs a command; returns its exit code and output."""
    result = CliRunner().invoke(cli, [words[0], "--config", str(world.toml), *words[1:]])
    return result.exit_code, " ".join(result.output.split())


def test_the_documented_rights_are_enough(worlds):
    world = worlds[None]
    world.assert_right(world.covered())
    assert world.totals()["rejected"] == {"version": 1}
    assert errors(world) == []
    for words in (("watch", "--once"), ("audit",), ("check",)):
        assert command(world, *words)[0] == 0
    assert len(dead_letters(world, 1)) == 1
    # a new publisher reads its predecessor's head
    world.workers[0].terminate()
    world.send(20, 2)
    world.launch()
    world.assert_right(world.covered())
    assert world.snapshots.sequence() > 1


ROWS = [f"--operation {operation} --topic ldp-rows" for operation in ("Write", "Read", "DescribeConfigs")]
"""Further rights for `rows.topic`."""


@pytest.mark.long
@pytest.mark.parametrize(("user", "without"), [(LIMITED[-1], None), (LIMITED[-2], "Write")])
def test_rows_need_the_documented_rights(secure, tmp_path, user, without):
    said = (
        "| `rows.topic`, to write rows | also Write and Read on `ldp-rows`, and DescribeConfigs for `check` |"
    )
    assert said in DOCUMENTED
    assert len(LIMITED) >= len(lines()) + 3
    with limited(secure, tmp_path / "rows", user, rows={}) as world:
        named = names(world) | {"ldp-rows": world.config.rows.topic}
        allowed = [
            line for line in (*lines(), *ROWS) if without is None or f"{without} --topic ldp-rows" not in line
        ]
        world.admin.create_acls([acl(line, user, named) for line in allowed])
        world.send(20, 2)
        world.settle()
        worker = world.launch()
        if without is not None:
            lacks = "TopicAuthorizationFailedError"
            until(lambda: any(lacks in line["error"] for line in worker.events("snapshot.retry")), lacks)
            assert world.snapshots.newest() is None
            return
        world.assert_right(world.covered())
        assert errors(world) == []
        assert command(world, "rows")[0] == 0


FAILS = {
    "Read --topic colour-reports": ("poll.retry", "is closed to this client"),
    "Read --group ldp-worker-colours": ("serve.retry", "GroupAuthorizationFailedError"),
    "Write --topic ldp-dead-letters": ("serve.retry", "TopicAuthorizationFailedError"),
    "Read --topic ldp-snapshots": None,
    "Write --topic ldp-snapshots": ("snapshot.retry", "TopicAuthorizationFailedError"),
    "Write --transactional-id ldp-worker/ldp-snapshots/colours": (
        "snapshot.retry",
        "TransactionalIdAuthorizationFailedError",
    ),
    "DescribeConfigs --topic colour-reports": None,
    "DescribeConfigs --topic ldp-snapshots": None,
    "DescribeConfigs --topic ldp-dead-letters": None,
}
"""Right -> the worker's event and error without it; None if a command reports it."""


def test_every_documented_right_is_tested():
    assert [line.removeprefix("--operation ") for line in lines()] == list(FAILS)


@pytest.mark.long
@pytest.mark.parametrize("lacking", FAILS)
def test_every_documented_right_is_needed(worlds, lacking):
    world = worlds[f"--operation {lacking}"]
    (worker,) = world.workers
    resource = names(world)[lacking.rpartition(" ")[2]]
    if (sign := FAILS[lacking]) is not None:
        event, words = sign
        until(lambda: any(words in line["error"] for line in worker.events(event)), f"{event}: {words}")
        assert world.snapshots.newest() is None
        if "Write" not in lacking:  # `check` does not write
            assert any(resource in said and "in the brokers' ACLs" in said for said in errors(world))
        user = LIMITED[1 + list(FAILS).index(lacking)]
        world.admin.create_acls([acl(f"--operation {lacking}", user, names(world))])
        world.assert_right(world.covered())
        assert not worker.events("stream.stopped")
        return
    world.covered()
    assert any(resource in said and "in the brokers' ACLs" in said for said in errors(world))
    assert command(world, "check")[0] == 1
    if lacking.startswith("Read"):
        for words in (("watch", "--once"), ("audit",)):
            code, said = command(world, *words)
            assert (code, "TopicAuthorizationFailedError" in said) == (1, True)


@pytest.mark.long
def test_a_gateway_and_a_shuffler_need_the_documented_rights(secure, tmp_path):
    """Another test shows the need of Delete."""
    user = LIMITED[-3]
    login = secure.client("LOGINS") | {"sasl_username": user, "sasl_password": LIMITED_PASSWORD}
    settings = {f"kafka.{key}": value for key, value in login.items()}
    front = Front(secure.running.kafka.address, tmp_path, settings=settings)
    intake, group = front.served.intake, front.config.shuffle_group(front.name)
    needed = {
        f"--operation Write --topic {intake}": intake,
        f"--operation Read --topic {intake}": intake,
        f"--operation Read --group {group}": group,
        f"--operation Write --topic {front.served.topic}": front.served.topic,
        f"--operation Write --transactional-id {front.config.shuffle_id(front.name, 0)}": front.config.shuffle_id(
            front.name, 0
        ),
    }
    upload, *shuffling = [acl(line, user, {name: name}) for line, name in needed.items()]

    def refusals():
        events = [*front.events("shuffle", "intake.retry"), *front.events("shuffle", "kafka.unavailable")]
        return sum("AuthorizationFailed" in event["error"] for event in events)

    with contextlib.closing(topics.connect({"bootstrap_servers": front.kafka})) as admin:
        admin.create_acls([upload, *shuffling])
        with front:
            front.start("shuffle")
            for batches, right in enumerate(shuffling):
                before = refusals()
                admin.delete_acls([right])
                for _ in range(BATCH):
                    assert front.upload(1) == 202
                until(lambda before=before: refusals() > before, f"a shuffler without {right}")
                assert front.shuffled().total() == BATCH * batches
                admin.create_acls([right])
                until(lambda n=batches: front.shuffled().total() == BATCH * (n + 1), f"a batch with {right}")
            admin.delete_acls([upload])
            until(lambda: front.upload(1) == 503, "a gateway without Write")


@pytest.mark.long
def test_an_import_needs_three_rights(secure, tmp_path):
    needed = [
        "--operation Read --topic colour-reports",
        "--operation Read --group ldp-worker-colours",
        "--operation Read --topic ldp-snapshots",
    ]
    user = LIMITED[len(lines()) + 1]
    with limited(secure, tmp_path / "importing", user) as world:
        world.send(10)
        world.settle()
        words = ("import", world.name, str(history(world, 0, 10)))
        rights = [acl(line, user, names(world)) for line in needed]
        for missing in rights:
            world.admin.create_acls([right for right in rights if right is not missing])
            resource = missing.resource_pattern.resource_name

            def refused(resource: str = resource) -> bool:
                code, said = command(world, *words)
                return code == 1 and resource in said and "AuthorizationFailed" in said

            until(refused, f"without Read on {resource}")
            assert "in the brokers' ACLs" in command(world, *words)[1]
            world.admin.delete_acls(rights)
        world.admin.create_acls(rights)
        until(lambda: command(world, *words)[0] == 0, "with all of them")
        assert world.totals()["offsets"] == {0: 10}
