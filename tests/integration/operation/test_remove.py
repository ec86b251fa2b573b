"""`ldp-worker remove` deletes all data of a stream and no data of another."""

import pytest
from click.testing import CliRunner
from kafka.errors import KafkaError

from tests.support.harness import World, until
from worker.cli import cli
from worker.kafka.snapshots import removal

pytestmark = pytest.mark.integration


@pytest.fixture
def other(local_services, world, tmp_path):
    """A second stream on the same snapshot topic and store."""
    folder = tmp_path / "other"
    folder.mkdir()
    with World(
        local_services.kafka.address,
        local_services.redis.address,
        folder,
        partitions=2,
        snapshots=world.config.snapshots.topic,
    ) as other:
        yield other


def remove(world, *options, name=None):
    return CliRunner().invoke(cli, ["remove", name or world.name, "--config", str(world.toml), *options])


def has_group(world):
    return removal.members(world.admin, world.group) is not None


def kept(world):
    """Returns the number of keys and messages, and whether the group exists."""
    keys = list(world.redis.scan_iter(f"{{{world.name}:*"))
    messages = len(removal.keys_of(world.admin, world.config, world.name)[world.config.snapshots.topic])
    return len(keys), messages, has_group(world)


def test_a_removed_stream_leaves_nothing_and_can_start_again(world, other):
    for each in (world, other):
        each.send(40)
        each.start()
        each.covered()
    before = kept(other)
    served = remove(world, "--yes")
    assert served.exit_code == 1
    assert "has 1 member: stop the workers" in served.stderr
    with pytest.raises(KafkaError, match="was not deleted: NonEmptyGroup"):
        removal.delete_group(world.admin, world.group)
    assert "'a*' given; it is not a valid name of a stream" in remove(world, name="a*").stderr
    for each in (world, other):
        (worker,) = each.workers
        assert worker.terminate() == 0
        until(lambda each=each: not each.members(), "nobody is in the group")
    there = kept(world)
    assert all(there)
    dry = remove(world)
    assert (dry.exit_code, dry.stdout.splitlines()[-1]) == (0, "use --yes to delete this data")
    assert f"Redis: {there[0]} keys" in dry.stdout
    assert f"topic {world.config.snapshots.topic}: {there[1]} messages" in dry.stdout
    assert kept(world) == there
    done = remove(world, "--yes")
    assert done.exit_code == 0, done.output
    assert kept(world) == (0, 0, False)
    assert kept(other) == before
    assert remove(world, "--yes").stdout.splitlines()[-1] == f"no data of {world.name} found"
    world.start()
    world.send(2)
    assert world.covered().reports == 42
    assert world.audit().difference is None
