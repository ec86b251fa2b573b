"""The world outside the workers: fates of calls, and faults between them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.scheduler import Crash, Scheduler, Task

if TYPE_CHECKING:
    from tests.simulation.deployment import Deployment
    from tests.simulation.snapshots import Snapshots
    from tests.simulation.themes import Theme

T = TypeVar("T")


_OF_A_CALL = (
    "crash", "lost_request", "late_request", "twice", "lost_reply", "staging_expired", "damaged", "expired_batch",
)  # fmt: skip
_OF_A_STEP = (
    "hang", "rebalance", "go_back", "lose", "expire", "retain", "truncate", "recreate", "grow", "open_another",
    "compact", "jump", "delete_head", "keep_unread", "unlead", "refuse", "give_back",
)  # fmt: skip
"""Methods of `World`."""
_OTHERS = "lost_mirror", "slow", "lied", "silent", "slow_join", "expelled", "unknown", "held_again"


class Faults(SimpleNamespace):
    """How likely each fault is, at a call, at a step, or elsewhere."""

    def __init__(self, **chances: float) -> None:
        super().__init__(**dict.fromkeys([*_OF_A_CALL, *_OF_A_STEP, *_OTHERS], 0.0) | {"any_step": 0.0})
        assert chances.keys() <= vars(self).keys()
        vars(self).update(chances)
        self.any_step = sum(getattr(self, name) for name in _OF_A_STEP)

    def but(self, **chances: float) -> Faults:
        """Returns the same faults with other chances for some."""
        return Faults(**vars(self) | chances)

    def denser(self, times: float) -> Faults:
        """Returns the same faults, so much likelier at a call or at a step."""
        return self.but(**{name: times * getattr(self, name) for name in (*_OF_A_CALL, *_OF_A_STEP)})


class World(Scheduler):
    """Everything outside the workers."""

    snapshots: Snapshots

    def __init__(self, seed: str, faults: Faults, theme: Theme) -> None:
        super().__init__(seed)
        self.faults, self.theme = faults, theme
        self.deployments: list[Deployment] = []
        self.late: list[tuple[str, Callable[[], object]]] = []
        self.lossy: set[str] = set()
        """Faults that may stop a stream."""
        self.vanished = False
        """Whether a store lost all that it had of a partition, or its blobs, or a topic's offsets; it then may stop."""
        self.play: Callable[[Task, str, str], str | None] = lambda *_: None
        """Called with the task, "before" or "after", and the call: returns its fate if a script has one for
        it."""
        self.about = -1, "", 0
        """A partition that the script is about, whom it is given to, and up to where it was stored then."""
        self.held: list[tuple[str, Callable[[], object]]] = []
        """Requests that the script holds back."""

    def call(
        self,
        what: str,
        effect: Callable[[], T],
        error: Callable[[], Exception],
        writes: bool = True,
        told: bool = False,
    ) -> T:
        """Runs a step against the outside, with the fate that the history draws.

        Executes ``writes``, which may also happen after its caller has given up, or twice if the request was
        sent again; the caller gets an answer if it is ``told``.
        """
        self.sleep()
        rng, faults, task = self.rng, self.faults, self.current
        if task is None:
            return effect()
        if self.play(task, "before", what) is not None:
            self.held.append((what, effect))
            raise error()
        if task.member.dead:
            raise Crash
        if faults.slow and rng.random() < faults.slow:
            self.note("a call takes long", what)
            self.sleep(rng.choice([0.3, 3.0, 8.0]))
            task.member.excuse(self.now)
        self._crash(task, "before", what)
        if rng.random() < faults.lost_request:
            self.note("lost request", what)
            raise error()
        if writes and rng.random() < faults.late_request:
            self.note("late request", what)
            self.late.append((what, effect))
            raise error()
        result = effect()
        self.say(what)
        if self.play(task, "after", what) is not None:
            raise error()
        if task.member.dead:
            raise Crash
        if writes and rng.random() < faults.twice:
            self.note("sent twice", what)
            self.late.append((what, effect))
            if told:
                raise error()
        self._crash(task, "after", what)
        if rng.random() < faults.lost_reply:
            self.note("lost reply", what)
            raise error()
        return result

    def _crash(self, task: Task, when: str, what: str) -> None:
        if self.rng.random() < self.faults.crash:
            self.note(f"crash {when} a step", what)
            self.kill(task.member)
            raise Crash

    def happen(self) -> None:
        """Runs external events between two steps."""
        if self.late and self.rng.random() < 0.05:
            what, effect = self.late.pop(int(self.rng.random() * len(self.late)))
            self.note("a request arrived late", what)
            try:
                effect()
            except AssertionError:
                raise
            except Exception as error:  # no caller receives the reply
                self.say("refused", type(error).__name__)
        if self.steps % 8 == 0:
            for deployment in self.deployments:
                deployment.group.tick()
            self.snapshots.tick()
        if self.rng.random() < self.faults.any_step:
            self._strike()

    def _strike(self) -> None:
        """Chooses among the faults that come by themselves."""
        at = self.rng.random() * self.faults.any_step
        for name in _OF_A_STEP:
            if at < (chance := getattr(self.faults, name)):
                getattr(self, name)(self.rng.choice(self.deployments))
                return
            at -= chance

    def hang(self, deployment: Deployment) -> None:
        members = [worker for worker in deployment.workers if not worker.dead]
        if members:
            worker = self.rng.choice(members)
            worker.hangs_until = self.now + self.rng.choice([0.5, 5.0, 40.0])
            self.note("a process hangs", f"{worker.name} until {worker.hangs_until:.2f}")

    def rebalance(self, deployment: Deployment) -> None:
        deployment.group.rebalance()

    def go_back(self, deployment: Deployment) -> None:
        """The store loses writes that it had acknowledged."""
        server = deployment.server
        if server.past:
            tag = self.rng.choice(sorted(server.past))
            server.go_back(tag, self.rng.choice(server.past[tag]))
            self.lossy.add("store")
            self.note("store went back", tag.decode())

    def lose(self, deployment: Deployment) -> None:
        """The store loses a partition or its blobs, often with all workers."""
        server, rng = deployment.server, self.rng
        if not server.past:
            return
        self.lossy.add("store")
        self.vanished = True
        if rng.random() < 0.7:
            for worker in list(deployment.workers):
                self.kill(worker)
        if rng.random() < 0.3:
            self.expire(deployment)  # as after a week off
        tag = rng.choice(sorted(server.past))
        kept = {k: v for k, v in server.of(tag).items() if k.endswith(b":meta")} if rng.random() < 0.3 else {}
        self.note("state lost", f"{tag.decode()}, but for {sorted(kept)}")
        server.go_back(tag, kept)
        del server.past[tag]

    def expire(self, deployment: Deployment) -> None:
        if deployment.group.offsets:
            self.note("offsets expired")
            deployment.group.offsets.clear()
            deployment.expired = True

    def retain(self, deployment: Deployment) -> None:
        reports = deployment.reports
        number = self.rng.randrange(len(reports.partitions))
        partition = reports.partitions[number]
        stable = partition.stable
        # a log that will get its beginning back loses only uncounted records
        counted = deployment.truth.offset(number) or 0
        least = max(partition.first, counted if self.faults.give_back else 0)
        if least < stable:
            partition.first = self.rng.randint(least, least + (stable - least) // self.theme.forgets)
            self.note("retention", f"{number} begins at {partition.first}")

    def give_back(self, deployment: Deployment) -> None:
        """Logs regain their first records: brokers' answers had been wrong."""
        for partition in deployment.reports.partitions:
            partition.lost, partition.first = max(partition.lost, partition.first), 0
        for consumer in [worker.consumer for one in self.deployments for worker in one.workers]:
            consumer.read = {p: (said, heads, 0) for p, (said, heads, _) in consumer.read.items()}
        self.note("logs have their beginnings again")

    def truncate(self, deployment: Deployment) -> None:
        reports = deployment.reports
        number = self.rng.randrange(len(reports.partitions))
        partition = reports.partitions[number]
        to = self.rng.choice([base for base, _, _ in partition.batches] or [0])
        if partition.first <= to < partition.end and partition.whole(to):
            partition.truncate(to)
            self.lossy.add("truncated")
            self.note("truncated", f"{number} to {to}")

    def recreate(self, deployment: Deployment) -> None:
        deployment.reports.recreate()
        for other in self.deployments:
            if other.reports is deployment.reports:
                other.group.offsets.clear()
        self.lossy.add("recreated")
        self.note("topic created again")

    def grow(self, deployment: Deployment) -> None:
        if len(deployment.reports.partitions) < 5:
            deployment.reports.grow()
            self.note("a partition more")

    def open_another(self, _deployment: Deployment) -> None:
        self.snapshots.open_another()

    def jump(self, deployment: Deployment) -> None:
        """A worker's own clock jumps."""
        if deployment.workers:
            self.rng.choice(deployment.workers).skew += self.rng.choice([1.0, 60.0, 3600.0])
            deployment.jumped = True
            self.note("a clock jumps")

    def delete_head(self, deployment: Deployment) -> None:
        if deployment.truth.heads and len({d.stream.name for d in self.deployments}) == len(self.deployments):
            self.snapshots.delete_head(deployment.stream.name)
            deployment.truth.deleted = True
            self.lossy.add("heads")
            self.note("head deleted")

    def keep_unread(self, _deployment: Deployment) -> None:
        self.snapshots.unreadable_until = self.now + self.rng.choice([5.0, 60.0])
        self.note("no record of snapshots comes")

    def unlead(self, deployment: Deployment) -> None:
        """The brokers of a partition are away."""
        reports = deployment.reports
        number = self.rng.randrange(len(reports.partitions))
        reports.leaderless[number] = until = self.now + self.rng.choice([0.5, 5.0, 40.0])
        self.note("a partition has no leader", f"{number} until {until:.2f}")

    def refuse(self, deployment: Deployment) -> None:
        """The node of the store that has a partition is full, or fails."""
        number = self.rng.randrange(len(deployment.reports.partitions))
        until, full = self.now + self.rng.choice([5.0, 40.0, 90.0]), self.rng.random() < 0.5
        deployment.server.refused[f"{{{deployment.stream.name}:{number}}}".encode()] = until, full
        self.note("a partition is refused", f"{number} until {until:.2f}, {'full' if full else 'down'}")

    def compact(self, _deployment: Deployment) -> None:
        self.snapshots.compact()


def kafka(error: Any) -> Callable[[], Exception]:
    """Converts an error of Kafka's client."""
    return lambda: error("in the simulation")
