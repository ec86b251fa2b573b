"""Every alert fires in Prometheus when it is provoked, and resolves.

The shipped rules run 20 times faster; `rules_test.yml` tests their true durations. All cases run at once.
"""

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

import ldp
from deploy.local.services import Services, free_ports
from ldp import frames
from tests.long.alerts.rules import alerts, groups
from tests.long.soak.stage import before
from tests.support import prometheus
from tests.support.harness import EVENT_TIME, Sending, World, batches, until
from tests.support.harness.front import BATCH, INFLIGHT, Front
from tests.support.harness.proxy import Proxy
from tests.support.harness.truth import support
from worker.gateway import ohttp

pytestmark = [pytest.mark.integration, pytest.mark.long]

FASTER = 20
"""The factor by which rules are faster."""
AGES = dict.fromkeys(("LdpSnapshotOld", "LdpLagging", "LdpWindowsHeldBack", "LdpRetrying"), FASTER)
AGES["LdpUploadsWaiting"] = 100 * FASTER
"""Alerts whose threshold is an age, and the factor by which the age is shorter."""
_UNITS = {"s": 1, "m": 60, "h": 3600}
_TIMEOUT = 120.0
BINARY = {"Content-Type": "application/octet-stream"}
HALF_A_REQUEST = (
    b"POST /v1/streams/%s/reports HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
    b"Content-Length: 2\r\n\r\nx"
)


def sped_up():
    """Returns the shipped rules with durations divided by `FASTER`."""

    def shorter(length):
        return f"{int(length[:-1]) * _UNITS[length[-1]] * 1000 // FASTER}ms"

    found = groups()
    for group in found:
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\d+[smh])\]", lambda range_: f"[{shorter(range_[1])}]", rule["expr"])
            if "for" in rule:
                rule["for"] = shorter(rule["for"])
            if rule.get("alert") in AGES:
                by = AGES[rule["alert"]]
                rule["expr"] = re.sub(r"(\d+)$", lambda age, by=by: f"{int(age[1]) / by:g}", rule["expr"])
    return {"groups": found}


@dataclass
class Watch:
    """Polls firing alerts: `now`, `ever`, and `quiet` polls since one fired."""

    scraper: prometheus.Prometheus
    now: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    ever: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    quiet: int = 0
    _ends: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()

    def _run(self):
        while not self._ends.wait(0.5):
            found = []
            for alert in self.scraper.get("alerts")["alerts"]:
                if alert["state"] == "firing":
                    labels = dict(alert["labels"])
                    name = labels.pop("alertname")
                    found.append((name, labels))
                    if labels not in self.ever.setdefault(name, []):
                        self.ever[name].append(labels)
            self.now = found
            self.quiet = 0 if found else self.quiet + 1

    def fires(self, name, **labels):
        """Returns whether an alert fires with these labels."""
        return any(name == each and labels.items() <= of.items() for each, of in self.now)

    def fired(self, name, **labels):
        """Waits until an alert fires."""
        until(lambda: self.fires(name, **labels), f"{name} {labels} fires, beside {self.now}", _TIMEOUT)

    def resolved(self, name, **labels):
        """Waits until an alert is resolved."""
        until(lambda: not self.fires(name, **labels), f"{name} {labels} is resolved", _TIMEOUT)


@dataclass
class Stage:
    """Services, streams and workers on which alerts are provoked."""

    services: Services
    kafka_proxy: Proxy
    folder: Path
    stack: contextlib.ExitStack
    ports: list[int] = field(default_factory=list)
    worlds: list[World] = field(default_factory=list)
    jobs: dict[str, list[str]] = field(default_factory=dict)
    watch: Watch = field(init=False)

    def stream(self, name, redis_url=None, **more):
        """Creates a stream."""
        folder, url = self.folder / name, redis_url or self.services.redis.address
        folder.mkdir()
        self.worlds.append(self.stack.enter_context(World(self.services.kafka.address, url, folder, **more)))
        return self.worlds[-1]

    def launch(self, world, *options, at=0, toml=None, serves=True, **environ):
        """Starts a worker at a port, waits until it serves; returns both."""
        if not at:
            (at,) = free_ports(1)
            self.ports.append(at)
        world.environ = {"LDP_WORKER_HTTP__PORT": str(at)} | environ
        worker = world.launch(toml, *options)
        if serves:
            until(worker.ready, f"{worker.log} ready")
        return worker, at


Case = Callable[[Stage], Iterator[None]]
CASES: list[tuple[tuple[str, ...], Case]] = []
"""Alerts and their cases: a case starts workers, yields, then provokes."""


def provokes(*names):
    """Registers a case for its alerts."""

    def note(case):
        CASES.append((names, case))
        return case

    return note


@provokes(
    *("LdpCommitSlow", "LdpRetrying", "LdpPartitionStuck", "LdpSnapshotOld", "LdpLagging", "LdpRetention"),
    "LdpSnapshotIncomplete",
)
def redis_is_slow_then_away_and_retention_goes_on(stage):
    proxy = stage.stack.enter_context(Proxy(("127.0.0.1", stage.services.redis.port)))
    world = stage.stream("away", f"redis://127.0.0.1:{proxy.port}/0", partitions=2)
    worker, port = stage.launch(world)
    sending = stage.stack.enter_context(Sending(world, pause=0.2))
    yield
    watch, of = stage.watch, {"stream": world.name}
    proxy.delay = 0.6
    watch.fired("LdpCommitSlow", **of)
    proxy.delay = 0.0
    watch.resolved("LdpCommitSlow", **of)

    proxy.refuse()
    counted = world.ends()[0]
    world.send(4000, counted=False)
    world.settle()
    world.admin.delete_records({TopicPartition(world.topic, 0): counted // 2})
    watch.fired("LdpRetrying", step="commit", **of)
    watch.fired("LdpSnapshotOld", **of)
    watch.fired("LdpLagging", **of)
    watch.fired("LdpPartitionStuck", partition="0", **of)
    watch.fired("LdpPartitionStuck", partition="1", **of)
    watch.fired("LdpRetention", partition="0", **of)
    assert not watch.fires("LdpRetention", partition="1", **of)

    # uncounted records are lost, too, and the worker that had them in memory dies
    world.admin.delete_records({TopicPartition(world.topic, 0): counted + 1000})
    members = list(world.members())
    worker.kill()
    world.expel(members)
    proxy.mend()
    stage.launch(world, at=port)
    watch.fired("LdpSnapshotIncomplete", cause="gap", **of)
    for name in ("LdpRetrying", "LdpSnapshotOld", "LdpLagging", "LdpPartitionStuck", "LdpRetention"):
        watch.resolved(name, **of)
    sending.more()


@provokes(
    *("LdpRejecting", "LdpDeadLettersSampled", "LdpKeyOrHeaders", "LdpUnreadable", "LdpLate", "LdpSumOff"),
    *("LdpOpenTransaction", "LdpWindowsHeldBack", "LdpPartitionWaiting"),
)
def producers_are_wrong(stage):
    """Sends from a clock ahead, malformed records and an open transaction."""
    windows = {"windows": ["10s"], "grace": "2s", "max_out_of_orderness": "1s", "retain": "10m"}
    world = stage.stream("wrong", partitions=3, reports=EVENT_TIME, **windows)
    stage.launch(world)
    held = world.open_producer(transactional_id=f"{world.name}-held")
    held.init_transactions()
    honest = frames.encode(world.stream, world.draw(2))
    for partition in range(3):
        world.put(honest, partition)
    yield
    watch, of = stage.watch, {"stream": world.name}
    held.begin_transaction()
    world.put(honest, 2, held)
    held.flush()
    bomb = batches.batch(batches.compressed(batches.ZSTD, batches.large(17 << 20)), codec=batches.ZSTD)
    batches.produce(world.kafka, world.topic, 1, bomb)
    now = int(1000 * time.time())
    for panes in range(1, 12):
        world.put(honest, 0, timestamp=now + 10_000 * panes)
    world.put(honest, 1, timestamp=now + 60_000)
    # every device sends the same report, which supports the most values, so seeds are not random
    drawn = world.draw(200)
    supports = [int(support(world.stream, drawn[each : each + 1]).sum()) for each in range(len(drawn))]
    most = int(np.argmax(supports))
    same = frames.encode(world.stream, np.repeat(drawn[most : most + 1], 20))

    def flood():
        for _ in range(100):
            world.put(b"malformed", 1)
        for _ in range(5):
            world.producer.send(world.topic, value=same, key=b"who", partition=1)
        time.sleep(0.1)
        return all(
            watch.fires(name, **of)
            for name in ("LdpRejecting", "LdpDeadLettersSampled", "LdpKeyOrHeaders", "LdpLate", "LdpSumOff")
        )

    watch.fired("LdpUnreadable", **of)
    until(flood, f"all of it fires; {watch.now}", _TIMEOUT)
    watch.fired("LdpOpenTransaction", partition="2", **of)
    watch.fired("LdpWindowsHeldBack", partition="2", **of)
    watch.fired("LdpPartitionWaiting", partition="0", reason="room", **of)

    held.commit_transaction()
    for partition in (1, 2):
        world.put(honest, partition, timestamp=now + 110_000)
    for name in ("LdpUnreadable", "LdpRejecting", "LdpDeadLettersSampled", "LdpKeyOrHeaders", "LdpLate"):
        watch.resolved(name, **of)
    for name in ("LdpOpenTransaction", "LdpWindowsHeldBack", "LdpPartitionWaiting"):
        watch.resolved(name, **of)


@provokes("LdpRetiredReports", "LdpDocumentUnnamed")
def a_document_is_retired_and_another_one_is_not_configured(stage):
    table = {"protocol": "grr", "epsilon": "1", "domain_size": 3}
    world, folder = stage.stream("documents", **table), stage.folder / "documents"
    old, new = world.stream, ldp.Stream(world.name, ldp.GRR("2", 3))
    for name, document in (("old", old), ("new", new)):
        (folder / f"{name}.json").write_text(json.dumps(document.document()), encoding="utf-8")
    lists = {"documents": ["new.json"], "retired": ["old.json"]}
    retired = world.configure("retired", **dict.fromkeys(table), **lists)
    worker, port = stage.launch(world, toml=retired)
    yield
    watch, of = stage.watch, {"stream": world.name}

    def both():
        for stream in (old, new):
            world.put(frames.encode(stream, stream.oracle.perturb([0])))
        time.sleep(0.2)
        return watch.fires("LdpRetiredReports", **of)

    until(both, "reports of a retired document fire", 2 * _TIMEOUT)
    watch.resolved("LdpRetiredReports", **of)
    assert worker.terminate() == 0
    stage.launch(world, at=port, serves=False)
    watch.fired("LdpDocumentUnnamed", **of)
    assert not watch.fires("LdpRejecting", **of)


@provokes("LdpOwnedTwice", "LdpWorkerDown", "LdpNoPublisher", "LdpSnapshotIncomplete")
def a_worker_is_cut_off_and_another_one_dies(stage):
    redis = stage.stack.enter_context(Proxy(("127.0.0.1", stage.services.redis.port)))
    world = stage.stream("pair", partitions=2, client={"session_timeout_seconds": 40})
    apart = stage.stream("apart", partitions=2)
    stage.launch(
        world,
        LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS=f"127.0.0.1:{stage.kafka_proxy.port}",
        LDP_WORKER_REDIS__URL=f"redis://127.0.0.1:{redis.port}/0",
    )
    cut = list(world.members())
    other, _ = stage.launch(world)
    until(world.balanced, "each has a partition")
    stage.stack.enter_context(Sending(world, pause=0.2))
    yield
    watch, of = stage.watch, {"stream": world.name}
    (mine,) = set(range(2)) - other.owned()
    stage.kafka_proxy.swallow()
    redis.swallow()
    world.expel(cut)
    watch.fired("LdpOwnedTwice", partition=str(mine), **of)
    stage.kafka_proxy.mend()
    redis.mend()
    watch.resolved("LdpOwnedTwice", **of)
    until(world.balanced, "each has a partition again")

    (owner,) = (worker for worker in world.workers if 0 in worker.owned())
    instance = f"127.0.0.1:{owner.port()}"
    owner.kill()
    watch.fired("LdpWorkerDown", instance=instance)
    watch.fired("LdpNoPublisher", **of)
    world.expel([*world.members()])
    watch.resolved("LdpNoPublisher", **of)
    stage.launch(world, at=int(instance.rpartition(":")[2]))
    watch.resolved("LdpWorkerDown", instance=instance)

    # each of two workers of another stream uses a separate Redis
    ports = [worker.port() for worker in world.workers if worker.alive()]
    for worker in world.workers:
        worker.kill()
    for number, port in enumerate(ports):
        url = stage.services.redis.address.rpartition("/")[0] + f"/{number}"
        stage.launch(apart, at=port, serves=False, LDP_WORKER_REDIS__URL=url)
    until(apart.balanced, "each has a partition")
    stage.stack.enter_context(Sending(apart, pause=0.2))
    watch.fired("LdpSnapshotIncomplete", stream=apart.name, cause="uncounted")
    assert not watch.fires("LdpSnapshotIncomplete", stream=apart.name, cause="gap")


@provokes("LdpProcessDown", "LdpProcessStartingAgain")
def a_process_ends_again_and_again(stage):
    world = stage.stream("processes", partitions=2)
    worker, port = stage.launch(world, "--processes", "2")
    yield
    watch, of = stage.watch, {"instance": f"127.0.0.1:{port}", "process": "1"}

    def kill():
        pid = [event["pid"] for event in worker.events("process.started") if event["process"] == 1][-1]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return watch.fires("LdpProcessStartingAgain", **of) and watch.fires("LdpProcessDown", **of)

    until(kill, f"both fire; {watch.now}", _TIMEOUT)
    assert not watch.fires("LdpProcessDown", process="0")
    watch.resolved("LdpProcessDown", **of)
    watch.resolved("LdpProcessStartingAgain", **of)


@provokes("LdpStreamStopped")
def counts_are_lost(stage):
    world = stage.stream("lost", partitions=1)
    worker, port = stage.launch(world)
    world.send(20)
    yield
    watch, of = stage.watch, {"stream": world.name}
    last = world.covered().sequence
    world.redis.delete(*world.redis.scan_iter(f"{{{world.name}:*"))
    watch.fired("LdpStreamStopped", **of)
    worker.terminate()
    stage.launch(world, at=port, toml=world.configure("again", recount_after=last))
    watch.resolved("LdpStreamStopped", **of)


@provokes("LdpValueChanged")
def a_population_moves(stage):
    """All users have one value in a window and another in the next two."""
    windows = {"windows": ["10s"], "grace": "0s", "max_out_of_orderness": "0s", "retain": "10m"}
    world = stage.stream("moving", partitions=1, reports=EVENT_TIME, **windows)
    stage.launch(world)
    begin = int(time.time()) // 10 * 10_000 - 60_000

    def window(number, value):
        reports = world.stream.oracle.perturb(np.full(2000, value), rng=np.random.default_rng(number))
        world.put(frames.encode(world.stream, reports), timestamp=begin + 10_000 * number)

    window(0, 1)
    yield
    for number in (1, 2):  # each closes the one before
        window(number, 2)
    stage.watch.fired("LdpValueChanged", stream=world.name, window="10s")
    window(3, 2)
    stage.watch.resolved("LdpValueChanged", stream=world.name, window="10s")


@provokes("LdpPoisonedReports")
def somebody_forges_reports(stage):
    """Sends copies of one report."""
    world = stage.stream("poisoned", partitions=1)
    stage.launch(world)
    world.put(frames.encode(world.stream, world.draw(2)), 0)
    yield
    same = frames.encode(world.stream, np.repeat(world.draw(1), 16))

    def forge():
        for _ in range(20):
            world.put(same, 0)
            time.sleep(0.02)
        return stage.watch.fires("LdpPoisonedReports", stream=world.name, test="repeats")

    until(forge, "copies are found", _TIMEOUT)


@provokes("LdpStartingAgain")
def a_topic_takes_no_dead_letter(stage):
    world = stage.stream("letter", partitions=1, dead_letters={"max.message.bytes": "500"})
    stage.launch(world)
    world.send(20)
    yield
    world.put(bytes(5000)[:1] + os.urandom(5000))
    stage.watch.fired("LdpStartingAgain", stream=world.name)
    topic = ConfigResource(ConfigResourceType.TOPIC, world.config.dead_letters.topic)
    topic.configs = {"max.message.bytes": "10000"}
    world.admin.alter_configs([topic])
    stage.watch.resolved("LdpStartingAgain", stream=world.name)


@provokes(
    *("LdpRedisFull", "LdpNoPublisher", "LdpPartitionsUnowned", "LdpRetrying", "LdpLagging"),
    *("LdpPartitionStuck", "LdpRetention"),
)
def redis_lets_nobody_in_and_is_nearly_full(stage):
    """A worker reaches Kafka but no Redis, so no worker owns the partitions."""
    world = stage.stream("full", partitions=2)
    worker, port = stage.launch(world)
    world.send(200)
    world.covered()
    yield
    watch, of = stage.watch, {"stream": world.name}
    assert worker.terminate() == 0
    where = stage.services.redis.address.replace("//", "//worker:of-yesterday@")
    worker, _ = stage.launch(world, at=port, serves=False, LDP_WORKER_REDIS__URL=where)
    watch.fired("LdpNoPublisher", **of)
    watch.fired("LdpPartitionsUnowned", **of)
    watch.fired("LdpRetrying", step="reach", **of)
    counted = world.ends()[0]
    world.send(4000)
    world.settle()
    watch.fired("LdpLagging", **of)
    world.admin.delete_records({TopicPartition(world.topic, 0): counted // 2})
    for partition in ("0", "1"):
        watch.fired("LdpPartitionStuck", partition=partition, **of)
    watch.fired("LdpRetention", partition="0", **of)
    assert not watch.fires("LdpRetention", partition="1", **of)
    worker.terminate()
    stage.launch(world, at=port)
    names = ("LdpNoPublisher", "LdpPartitionsUnowned", "LdpRetrying", "LdpLagging", "LdpPartitionStuck")
    for name in (*names, "LdpRetention"):
        watch.resolved(name, **of)
    assert world.covered().reports == world.n

    world.redis.setrange("of somebody else", 64 << 20, b"1")
    world.redis.config_set("maxmemory", int(world.redis.info("memory")["used_memory"] / 0.94))
    server = "redis://" + stage.services.redis.address.partition("//")[2].partition("/")[0]
    watch.fired("LdpRedisFull", server=server)
    world.redis.delete("of somebody else")
    watch.resolved("LdpRedisFull", server=server)
    world.redis.config_set("maxmemory", 0)


@provokes(
    *(
        "LdpGatewayRefusing",
        "LdpGatewayRejecting",
        "LdpGatewayUnopened",
        "LdpShuffleDuplicates",
        "LdpUploadsLost",
    ),
    *("LdpUploadsWaiting", "LdpUploadsDown", "LdpShuffleRetrying"),
)
def uploads_go_wrong(stage):
    """Fills the gateway, repeats an id, writes to the intake, and moves the shuffler's offset."""
    (stage.folder / "front").mkdir()
    key = stage.folder / "front" / "key"
    ohttp.new_key(key)
    settings = {"gateway.ohttp.key_files": [str(key)]}
    front = stage.stack.enter_context(Front(stage.services.kafka.address, key.parent, settings=settings))
    front.start("shuffle")
    stage.jobs |= front.jobs
    yield
    watch, of = stage.watch, {"stream": front.name}
    intake, repeated = TopicPartition(front.served.intake, 0), secrets.token_hex(16)
    producer = KafkaProducer(bootstrap_servers=front.kafka)
    stage.stack.callback(producer.close)

    def flood():
        for _ in range(BATCH):
            front.upload(1, repeated)
            front.upload(1)
            front.ask(front.port, "POST", f"/v1/streams/{front.name}/reports", b"noise", BINARY)
            front.ask(front.port, "POST", "/ohttp", b"noise", {"Content-Type": "message/ohttp-req"})
        producer.send(intake.topic, b"noise", os.urandom(16), partition=0)
        with contextlib.ExitStack() as waiting:
            for _ in range(INFLIGHT // front.config.gateway.max_body_bytes):
                client = waiting.enter_context(socket.create_connection(("127.0.0.1", front.port)))
                client.sendall(HALF_A_REQUEST % front.name.encode())
            time.sleep(0.2)
            for number in range(100):
                front.upload(number)
        names = ("LdpGatewayRefusing", "LdpGatewayRejecting", "LdpShuffleDuplicates")
        lost = watch.fires("LdpUploadsLost", **of) and watch.fires("LdpGatewayUnopened", outcome="key")
        return lost and all(watch.fires(name, **of) for name in names)

    until(flood, f"all of it fires; {watch.now}", _TIMEOUT)
    producer.close()
    for _ in range(BATCH // 2):
        front.upload(1)
    for name in ("LdpGatewayRefusing", "LdpGatewayRejecting", "LdpUploadsLost"):
        watch.resolved(name, **of)
    watch.fired("LdpUploadsWaiting", **of)

    front.processes["shuffle"].terminate()
    watch.fired("LdpUploadsDown", job="ldp-shuffler")
    front.expel()
    group = KafkaConsumer(bootstrap_servers=front.kafka, group_id=front.config.shuffle_group(front.name))
    stage.stack.callback(group.close)
    committed = group.committed(intake)
    group.commit({intake: OffsetAndMetadata(1 << 40, "", -1)})
    front.start("shuffle")
    watch.resolved("LdpUploadsDown", job="ldp-shuffler")
    watch.fired("LdpShuffleRetrying", step="claim", **of)
    front.processes["shuffle"].terminate()
    front.expel()
    group.commit({intake: OffsetAndMetadata(committed, "", -1)})
    front.start("shuffle")
    watch.resolved("LdpShuffleRetrying", **of)


NOWHERE_ELSE = (
    *("LdpKeyOrHeaders", "LdpLate", "LdpDeadLettersSampled", "LdpOwnedTwice", "LdpPartitionWaiting"),
    *("LdpStartingAgain", "LdpStreamStopped"),
    *("LdpOpenTransaction", "LdpUnreadable", "LdpProcessStartingAgain"),
)
"""Alerts that fire with one set of labels only."""
LAST = ("LdpNoWorkers",)
"""Provoked at the end by killing all workers."""


def test_every_alert_is_provoked():
    provoked = {name for names, _ in CASES for name in names}
    assert provoked | {*LAST} == alerts().keys()


def test_faster_rules_differ_in_durations_only():
    shipped, faster = (json.dumps(found, sort_keys=True) for found in ({"groups": groups()}, sped_up()))
    plain = re.compile(r"\[\d+(?:ms|[smh])\]|(?<=\"for\": \")[^\"]+|(?<= > )[\d.]+(?=\")")
    assert plain.sub("", faster) == plain.sub("", shipped)
    assert "[15000ms]" in faster


def test_each_alert_fires_when_it_is_provoked_and_not_before(tmp_path):
    with contextlib.ExitStack() as stack:
        services = stack.enter_context(Services.start(print))
        stage = Stage(services, stack.enter_context(before(services.kafka)), tmp_path, stack)
        with ThreadPoolExecutor(len(CASES)) as pool:
            cases = [case(stage) for _, case in CASES]
            for started in [pool.submit(next, case) for case in cases]:
                started.result()
            rules = tmp_path / "rules.json"  # JSON is YAML
            rules.write_text(json.dumps(sped_up()), encoding="utf-8")
            targets = [f"127.0.0.1:{port}" for port in stage.ports]
            scraper = stack.enter_context(prometheus.running(tmp_path, targets, rules, jobs=stage.jobs))
            scraped = len(targets) + len(stage.jobs)
            until(lambda: scraper.values("sum(up)") == [scraped], "all processes are scraped")
            watch = stage.watch = stack.enter_context(Watch(scraper))
            until(lambda: watch.quiet >= 64, "some time in health", 2 * _TIMEOUT)
            watch.ever.clear()

            happened = [pool.submit(next, case, None) for case in cases]
            if failed := [error for one in happened if (error := one.exception()) is not None]:
                raise BaseExceptionGroup("cases", failed)
            assert {name for name in NOWHERE_ELSE if len(watch.ever[name]) != 1} == set()
        for world in stage.worlds:
            for worker in world.workers:
                worker.kill()
        watch.fired("LdpNoWorkers")
