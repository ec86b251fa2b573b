"""Members with a name, `kafka.member`: restart, duplicate, stop."""

import pytest

from tests.support.harness import Sending, until

pytestmark = pytest.mark.integration


def launch(world, name, *options):
    """Starts a worker with a member name."""
    named = {"member": name, "session_timeout_seconds": 600}
    return world.launch(world.configure(f"worker-{name}", client=named), *options)


def start(world, *names):
    """Starts named workers and waits until each owns partitions."""
    workers = [launch(world, name) for name in names]
    for worker in workers:
        until(worker.ready, f"{worker.log.name} ready")
    until(world.balanced, "every worker owns a partition, and all are owned")
    return workers


def names(world):
    """Returns the member id of each name."""
    members = world.admin.describe_groups([world.group])[world.group]["members"]
    return {member["group_instance_id"]: member["member_id"] for member in members}


def claims(worker):
    """Returns the partitions that a worker claimed, and how."""
    return [(event["partition"], event["start"]) for event in worker.events("partition.claimed")]


def publisher(workers):
    """Returns the publishing worker first."""
    return sorted(workers, key=lambda worker: not worker.metric("publisher"))


def test_a_restarted_member_resumes_without_a_rebalance(world):
    workers = start(world, "one", "two")
    world.send(8)
    world.covered()
    until(lambda: any(worker.metric("publisher") for worker in workers), "one of them publishes")
    killed, other = publisher(workers)
    owned, before, members = killed.owned(), claims(other), names(world)
    name = "one" if killed is workers[0] else "two"
    with Sending(world) as sending:
        sending.more()
        killed.kill()
        back = launch(world, name)
        until(back.ready, "it serves again")
        until(lambda: back.metric("publisher"), "it publishes again")
        sending.more()
    world.assert_right(world.covered())

    assert sorted(claims(back)) == [(partition, "resume") for partition in sorted(owned)]
    assert claims(other) == before
    assert other.events("partition.released") == []
    changed = {member for member, id_ in names(world).items() if members[member] != id_}
    assert changed == {name}


@pytest.mark.long
def test_the_older_of_two_members_with_one_name_stops(world):
    (first,) = start(world, "one")
    with Sending(world) as sending:
        sending.more()
        second = launch(world, "one")
        why = first.stopped_for()  # its exit does not affect the second worker
        until(second.ready, "the second serves")
        sending.more()
    assert why.startswith(f"Displaced: another process joined the group '{world.group}' as 'one'")
    assert "its own kafka.member" in why
    assert not first.events("serve.retry")  # it does not join again
    world.assert_right(world.covered())
    assert {partition for partition, _ in claims(second)} == set(range(world.partitions))
    assert names(world).keys() == {"one"}


@pytest.mark.long
def test_a_stopped_member_hands_over_at_once(world):
    workers = start(world, "one", "two")
    world.send(8)
    world.covered()
    until(lambda: any(worker.metric("publisher") for worker in workers), "one of them publishes")
    stopped, other = publisher(workers)
    moved = {(partition, "resume") for partition in stopped.owned()}
    with Sending(world) as sending:
        sending.more()
        assert stopped.terminate() == 0
        until(lambda: moved <= {*claims(other)}, "the other one has its partitions")
        assert len(names(world)) == 1
        sending.more()
    world.assert_right(world.covered())
