"""check: each fault is found at its level, without false findings."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ldp
from ldp import frames, kernels, snapshot
from ldp.oracles import ORACLES
from ldp.privacy.amplification import ADVERSARIES
from ldp.query import SetQuery, TopQuery
from ldp.terminal import piped, show
from tests.support.cells import cells_of
from tests.support.estimates import estimated
from worker.check import Finding, Level, assess_privacy
from worker.check import kafka as check_kafka
from worker.check.counts import assess_counts
from worker.check.kafka import (
    assess_abilities,
    assess_brokers,
    assess_head,
    assess_open_transactions,
    assess_reports,
    assess_session,
)
from worker.check.machine import assess_cache, cache_folder
from worker.check.redis import (
    STRING_LIMIT,
    assess_blobs,
    assess_memory,
    assess_redis,
    assess_refusals,
    assess_sentinels,
    assess_used,
    together,
)
from worker.check.topics import assess_topics
from worker.cli.check import render
from worker.config import parse
from worker.counting import layout, rejections
from worker.counting.columns import Columns
from worker.counting.documents import Document
from worker.counting.head import Head
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.counting.rules import RecordLimits, RequestedRule, Rule
from worker.counting.windows import Windowing
from worker.kafka.admin.cluster import Brokers, Cluster
from worker.kafka.admin.open_transactions import OpenTransactions
from worker.kafka.client import topics
from worker.kafka.dead_letters.writer import WHOLE_BYTES
from worker.kafka.reports.reader import NewestReports

CONFIG_TEXT = """
group = "g"
[[streams]]
name = "colours"
topic = "reports"
protocol = "grr"
epsilon = "1"
labels = ["red", "green", "blue"]
[[streams.queries]]
name = "warm"
values = ["red"]
"""
OK, WARNING, ERROR = Level
CONFIG = parse(CONFIG_TEXT)
SERVED = CONFIG.streams[0]
SOUND = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}


def topic(replicas: int = 3, **changed: str) -> topics.Topic:
    return topics.Topic("id-1", 2, replicas, SOUND | {k.replace("_", "."): v for k, v in changed.items()})


def ours(**changed: str) -> topics.Topic:
    """A topic that workers write to."""
    return topic(message_timestamp_type="LogAppendTime", **changed)


def cluster(**changed: topics.Topic) -> dict[str, topics.Topic]:
    there = {"reports": topic(), "ldp-snapshots": ours(cleanup_policy="compact"), "ldp-dead-letters": ours()}
    return there | {k.replace("_", "-"): v for k, v in changed.items()}


def levels(findings: list[Finding], subject: str) -> list[Level]:
    return [f.level for f in findings if f.subject == subject and f.level is not OK]


def test_brokers_are_assessed_by_their_version():
    found = assess_brokers(Brokers(3, (4, 0), "abc"))
    assert (found.level, found.text) == (OK, "3 broker(s), Kafka 4.0 or newer, cluster abc")
    found = assess_brokers(Brokers(1, (2, 7), "abc"))
    assert found.level is ERROR
    assert "Kafka 2.7 or newer" in found.text
    assert "2.8" in found.hint


@pytest.mark.parametrize("seconds", [5.999, 6, 30, 31])
def test_a_refused_session_timeout_is_an_error_with_the_allowed_range(seconds):
    found = assess_session(seconds, (6000, 30_000))
    assert [f.level for f in found] == [ERROR] * (not 6 <= seconds <= 30)
    assert all(f"kafka.session_timeout_seconds={seconds}: the brokers allow 6 to 30" in f.text for f in found)
    assert assess_session(seconds, None) == []


def test_valid_topics_have_no_findings_and_missing_ones_are_errors():
    assert {f.level for f in assess_topics(CONFIG, cluster())} == {OK}
    assert [f.level for f in assess_topics(CONFIG, {})] == [ERROR] * 3


@pytest.mark.parametrize("name", ["reports", "ldp-snapshots", "ldp-dead-letters"])
def test_settings_hidden_from_the_user_are_an_error(name):
    """Brokers answer this without any settings, and the client library gives no reason."""
    found, *rest = assess_topics(CONFIG, cluster() | {name: topics.Topic("id-1", 2, 3, {})})
    assert (found.level, found.subject) == (ERROR, f"topic {name}")
    assert found.hint == "allow the user DescribeConfigs on the topic in the brokers' ACLs"
    assert [one.level for one in rest] == [OK] * 2


@pytest.mark.parametrize(
    ("name", "found", "level"),
    [
        ("reports", topic(cleanup_policy="compact"), ERROR),
        ("reports", topic(cleanup_policy="compact,delete"), ERROR),
        ("reports", topic(message_timestamp_after_max_ms="9223372036854775807"), WARNING),
        ("reports", topic(retention_ms="3600000"), WARNING),
        ("reports", topic(retention_bytes="1000"), WARNING),
        ("reports", topic(max_message_bytes="100"), ERROR),
        ("reports", topic(unclean_leader_election_enable="true"), WARNING),
        ("reports", topic(replicas=1, min_insync_replicas="1"), WARNING),
        ("reports", topic(replicas=1, min_insync_replicas="2"), ERROR),
        ("reports", topic(min_insync_replicas="1"), WARNING),
        ("reports", topic(min_insync_replicas="3"), WARNING),
        ("ldp-snapshots", ours(), ERROR),
        ("ldp-snapshots", ours(cleanup_policy="compact", max_message_bytes="1000"), ERROR),
        ("ldp-dead-letters", ours(cleanup_policy="compact"), WARNING),
        ("ldp-dead-letters", ours(max_message_bytes="5000"), WARNING),
        ("ldp-dead-letters", ours(max_message_bytes="4095"), ERROR),
        ("ldp-dead-letters", topic(), WARNING),
        ("ldp-snapshots", topic(cleanup_policy="compact"), WARNING),
    ],
)
def test_a_fault_of_one_topic_is_the_only_finding(name, found, level):
    findings = assess_topics(CONFIG, cluster() | {name: found})
    assert levels(findings, f"topic {name}") == [level]
    assert all(f.hint for f in findings if f.level is not OK)


INTAKE = parse(CONFIG_TEXT.replace('topic = "reports"', 'topic = "reports"\nintake = "uploads"'))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (ours(retention_ms="86400000"), []),
        (ours(retention_ms="7200000"), []),
        (ours(retention_ms="-1"), []),
        (ours(retention_ms="7199999"), [ERROR]),
        (ours(cleanup_policy="compact"), [ERROR]),
        (ours(cleanup_policy="compact,delete"), [ERROR]),
        (topic(), [ERROR]),
        (ours(retention_bytes="1000"), [WARNING]),
        (ours(max_message_bytes="616"), [ERROR]),
        (ours(max_message_bytes="617"), []),  # 100 reports of a byte, header and overhead
        (ours(remote_storage_enable="true"), [WARNING]),
        (ours(min_insync_replicas="1"), [WARNING]),
    ],
)
def test_each_wrong_setting_of_an_intake_is_found(found, expected):
    findings = assess_topics(INTAKE, cluster(uploads=found))
    assert levels(findings, "topic uploads") == expected
    assert {finding.level for finding in findings if finding.subject != "topic uploads"} == {OK}


def test_a_missing_intake_is_an_error():
    (missing,) = (finding for finding in assess_topics(INTAKE, cluster()) if finding.level is ERROR)
    assert (missing.subject, missing.hint) == ("topic uploads", "ldp-worker create-topics")


def test_output_topics_use_broker_time():
    made = {spec.name: spec.settings.get("message.timestamp.type") for spec in topics.specs(CONFIG, 1)}
    assert (made["ldp-snapshots"], made["ldp-dead-letters"]) == ("LogAppendTime", "LogAppendTime")
    there = cluster() | {"ldp-snapshots": topic(cleanup_policy="compact"), "ldp-dead-letters": topic()}
    (found,) = [f for f in assess_topics(CONFIG, there) if f.level is not OK]
    assert found.subject == "topics ldp-snapshots, ldp-dead-letters"
    assert "a worker whose clock is more than 1h ahead of the brokers' cannot write" in found.text
    assert found.hint == "set message.timestamp.type=LogAppendTime"


def test_a_fault_of_many_topics_is_one_line():
    there = {name: replace(one, replicas=1) for name, one in cluster().items()}
    found = [f for f in assess_topics(CONFIG, there) if "accepts no records" in f.text]
    assert [f.subject for f in found] == ["topics reports, ldp-snapshots, ldp-dead-letters"]


@pytest.mark.parametrize(
    ("brokers", "said"),
    [
        ({}, []),
        ({"transactions": False}, ["no transactions (ApiVersions"]),
        ({"compacts": False}, ["no compaction (log.cleaner.enable=false)"]),
    ],
)
def test_brokers_without_transactions_or_compaction_are_named(brokers, said):
    found = [*assess_abilities(Brokers(1, (4, 0), "abc", **brokers))]
    assert [f.level for f in found] == [ERROR] * len(said)
    assert all(f.text.startswith(one) and f.hint for f, one in zip(found, said, strict=True))


def test_a_topic_with_unknown_cleanup_policy_is_not_compacted():
    unknown = {k: v for k, v in ours().settings.items() if k != "cleanup.policy"}
    there = cluster() | {"ldp-snapshots": topics.Topic("id-1", 1, 3, unknown)}
    assert levels(assess_topics(CONFIG, there), "topic ldp-snapshots") == [ERROR]


@pytest.mark.parametrize(
    ("refusals", "message", "level"),
    [
        ((True, True, False), "it refuses INFO and CONFIG to this user", WARNING),
        ((False, True, False), "it refuses CONFIG to this user", OK),
        ((False, False, True), "redis.password is set, but Redis answers without it", WARNING),
    ],
)
def test_refused_commands_and_an_unused_password_are_separate_lines(refusals, message, level):
    (found,) = assess_refusals(*refusals)
    assert (found.level, found.text.startswith(message), bool(found.hint)) == (level, True, True)
    assert [*assess_refusals(False, False, False)] == []


GOOD_REDIS = {"redis_version": "7.0.15", "role": "master", "aof_enabled": 1, "maxmemory_policy": "noeviction"}


@pytest.mark.parametrize(
    ("changed", "fsync", "level"),
    [
        ({}, None, None),
        ({"redis_version": "6.2.0"}, "everysec", None),
        ({"redis_version": "6.0.16"}, "everysec", ERROR),
        ({"maxmemory_policy": "allkeys-lru"}, "everysec", ERROR),
        ({"role": "slave"}, "everysec", ERROR),
        ({"cluster_enabled": 1}, "everysec", ERROR),
        ({"redis_mode": "sentinel"}, None, ERROR),
        ({"aof_enabled": 0}, "everysec", WARNING),
        ({}, "no", WARNING),
    ],
)
def test_redis_settings_have_the_expected_level(changed, fsync, level):
    found = levels(assess_redis(GOOD_REDIS | changed, fsync), "redis")
    assert found == ([] if level is None else [level])


def test_a_cluster_counts_the_memory_of_all_nodes():
    assert levels(assess_redis(GOOD_REDIS | {"cluster_enabled": 1}, "everysec", "cluster"), "redis") == []
    infos = [{"maxmemory": 5, "total_system_memory": 7}, {"maxmemory": 6, "total_system_memory": 8}]
    assert together(infos) == {"maxmemory": 11, "total_system_memory": 15}
    assert together([*infos, {"maxmemory": 0}])["maxmemory"] == 0


@pytest.mark.parametrize(
    ("others", "replicas", "level"), [(2, 1, OK), (2, 0, WARNING), (1, 1, WARNING), (0, 2, WARNING)]
)
def test_sentinels_need_a_quorum_and_a_replica(others, replicas, level):
    state = {"num-other-sentinels": others, "quorum": 2, "num-slaves": replicas, "ip": "one", "port": 1}
    (found,) = assess_sentinels(state)
    assert found.level is level
    assert f"{others + 1} Sentinel(s), quorum 2: one:1 is the master, with {replicas} r" in found.text


@pytest.mark.parametrize(("maxmemory", "level"), [(1 << 30, "ok"), (20_000, "warning"), (10_000, "error")])
def test_redis_memory_has_the_expected_level(maxmemory, level):
    # 2 partitions of 3 counters of 8 bytes and 4 KiB, twice during a commit: 16,432 bytes
    assert assess_memory(CONFIG, cluster(), {"maxmemory": maxmemory}).level == level


@pytest.mark.parametrize(
    ("info", "level", "message"),
    [
        ({"maxmemory": 0, "used_memory": 5 << 30}, None, ""),
        ({"maxmemory": 1 << 30, "used_memory": 900 << 20}, None, ""),
        ({"maxmemory": 1 << 30, "used_memory": 1 << 30}, WARNING, "1.0 GiB of 1.0 GiB used: soon"),
        ({"maxmemory": 1 << 30, "used_memory": 1 + (1 << 30)}, ERROR, "Redis refuses writes"),
        # memory that Redis ignores for its limit: buffers of replicas and of the append-only file
        ({"maxmemory": 1 << 30, "used_memory": 2 << 30, "mem_not_counted_for_evict": 3 << 29}, None, ""),
    ],
)
def test_used_up_redis_memory_is_reported(info, level, message):
    found = assess_used(info)
    assert levels(found, "redis memory") == ([] if level is None else [level])
    assert all(message in finding.text and finding.hint for finding in found)


@pytest.mark.parametrize(
    ("held", "level", "message"),
    [
        (
            OpenTransactions(2, 50, 150, ("etl-1",), 12.0),
            WARNING,
            "partition 2: a transaction (etl-1), open for 12 s,",
        ),
        (OpenTransactions(2, 50, 150, ("etl-1",), 301.0), ERROR, "blocks 100 offset(s) of all producers"),
        (OpenTransactions(0, 7, 8), WARNING, "partition 0: a transaction blocks 1 offset(s) of all"),
    ],
)
def test_records_blocked_by_an_open_transaction_are_reported(held, level, message):
    (finding,) = assess_open_transactions("reports", [held])
    assert (finding.level, finding.subject) == (level, "topic reports")
    assert message in finding.text
    abort = f"--topic reports --partition {held.partition} --start-offset {held.first}"
    assert finding.hint.endswith(abort)


@pytest.mark.parametrize(
    ("protocol", "entries"),
    [
        ('protocol = "hadamard"\ndomain_size = 1048576', 1 << 21),
        ('protocol = "pgr"\ndomain_size = 1048576', (3**14 - 1) // 2),
    ],
)
def test_memory_depends_on_the_state_and_not_on_the_domain(protocol, entries):
    config = parse(f"[[streams]]\nname = 's'\ntopic = 'reports'\nepsilon = '1'\n{protocol}")
    # 2 partitions, counters of 8 bytes, twice during a commit; and some kilobytes
    need = 2 * 2 * 8 * entries
    for room, level in ((0, "error"), (4 * 4096, "warning")):
        assert assess_memory(config, cluster(), {"maxmemory": need + room}).level == level


def large(protocol, **more):
    table = {"name": "s", "topic": "reports", "protocol": protocol, "epsilon": "1"} | more
    return parse("[[streams]]\n" + "\n".join(f"{key} = {value!r}" for key, value in table.items()))


@pytest.mark.parametrize(("limit", "level"), [(131_072, ERROR), (174_000, WARNING), (176_000, None)])
def test_a_large_report_must_fit_its_topic(limit, level):
    config = large("oue", domain_size=1 << 20)  # 131,072 bytes, 174,764 characters of base64
    found = assess_topics(config, cluster(reports=topic(max_message_bytes=str(limit))))
    assert levels(found, "topic reports") == ([] if level is None else [level])


@pytest.mark.parametrize(("cap", "level"), [(131_072, ERROR), (174_000, WARNING), (176_000, None)])
def test_a_large_report_must_fit_the_batch_limit(cap, level):
    table = "name = 's'\ntopic = 'reports'\nprotocol = 'oue'\nepsilon = '1'\ndomain_size = 1048576"
    config = parse(f"[kafka]\nmax_batch_bytes = {cap}\n[[streams]]\n{table}")
    found = assess_topics(config, cluster(reports=topic(max_message_bytes="176000")))
    # and the topic takes larger batches than are read
    larger = [WARNING] if cap < 176_000 else []
    assert levels(found, "topic reports") == ([] if level is None else [level]) + larger


@pytest.mark.parametrize(("limit", "warned"), [(16 << 20, False), ((16 << 20) + 1, True)])
def test_a_topic_that_accepts_oversized_batches_is_a_warning(limit, warned):
    found = assess_topics(CONFIG, cluster(reports=topic(max_message_bytes=str(limit))))
    (one,) = [f for f in found if f.subject == "topic reports"]
    assert (one.level is WARNING) == warned
    assert ("set max.message.bytes=16777216, or raise kafka.max_batch_bytes" in one.hint) == warned


def test_created_topics_accept_the_largest_record():
    def settings(config):
        return {spec.name: spec.settings for spec in topics.specs(config, 2)}

    # 2 MiB a report, 2.7 MiB as JSON: more than the default limit of brokers
    made = settings(large("oue", domain_size=1 << 24))
    least = (1 << 24) // 8 * 4 // 3
    assert least < int(made["reports"]["max.message.bytes"]) < least + 20_000
    # a dead letter of such a record is its beginning
    assert "max.message.bytes" not in made["ldp-dead-letters"]
    assert WHOLE_BYTES + 4096 < topics.BROKER_LIMIT
    for config in (large("oue", domain_size=1 << 20), large("pgr", domain_size=1 << 24), CONFIG):
        assert "max.message.bytes" not in settings(config)["reports"] | settings(config)["ldp-dead-letters"]
    # such settings raise no finding
    there = {name: topics.Topic("id-1", 2, 3, SOUND | dict(settings)) for name, settings in made.items()}
    assert {f.level for f in assess_topics(large("oue", domain_size=1 << 24), there)} == {OK}


@pytest.mark.parametrize(
    ("reports", "dead_letters", "hint"),
    [
        (8 << 20, 1_048_588, ""),
        (8 << 20, 9000, "set max.message.bytes=1048588 to keep them complete"),
        (7000, 6999, "set max.message.bytes=7000 to keep them complete"),
    ],
)
def test_dead_letters_need_at_most_the_size_of_the_largest_record(reports, dead_letters, hint):
    there = cluster(reports=topic(max_message_bytes=str(reports)))
    there |= {"ldp-dead-letters": ours(max_message_bytes=str(dead_letters))}
    found = [f for f in assess_topics(CONFIG, there) if f.subject == "topic ldp-dead-letters"]
    assert [f.hint for f in found] == [hint]


@pytest.mark.parametrize("protocol", ORACLES)
@pytest.mark.parametrize("d", [2, 70_000])
def test_records_of_one_report_stay_within_the_stated_size(protocol, d):
    stream = ldp.Stream("s", ldp.oracle(protocol, epsilon="1", domain_size=d))
    report = stream.oracle.perturb([d - 1], rng=np.random.default_rng(1))
    binary, as_json = topics.largest_report(ldp.Fleet((stream,)))
    kafka = 200  # a batch of one record without headers has 70 bytes and its key in addition to the value
    assert len(frames.encode(stream, report)) + kafka <= binary <= len(frames.encode(stream, report)) + 512
    written = len(frames.encode_json(stream, report))
    assert written + kafka <= as_json <= written + 512


def test_a_partitions_counts_must_fit_into_a_string():
    config = large("pgr", domain_size=1000, prime=3, dimension=7)
    state = PartitionState.fresh(config.streams[0].fleet, 0)
    cells_of(state)["all"].state[0] = 1 << 32  # then an entry has 8 bytes
    _, blobs = layout.dump(state, layout.initial("", state), "0" * 32)
    (blob,) = blobs.values()
    size = len(blob)
    assert size == 50 + 8 * 1093
    assert [*assess_blobs(config, size)] == []
    (finding,) = assess_blobs(config, size - 1)
    assert (finding.level, f"can have {size} bytes" in finding.text) == (ERROR, True)
    assert f"proto-max-bulk-len {size}" in finding.hint


def test_the_largest_state_exceeds_the_default_limit_of_redis():
    # a projective line of 4d points: 2^26 counters minus four are 512 MiB and 16 bytes with the header
    config = large("pgr", domain_size=16_777_216, prime=67_108_859, dimension=2)
    assert [f.level for f in assess_blobs(config, STRING_LIMIT)] == [ERROR]
    assert [*assess_blobs(parse(CONFIG_TEXT), STRING_LIMIT)] == []


def test_snapshots_of_another_stream_are_reported():
    ours = {"group": "g-colours", "topic_id": "id-1"}
    topic = topics.Topic("id-1", 2, 3, SOUND)

    def assessed(head, topic=topic):
        return assess_head(CONFIG, SERVED, topic, head)

    assert assessed(Head()).level is OK
    assert assessed(Head(7, {0: 3}, 5, lineage=ours)).level is OK
    # without a topic its id cannot be another
    assert assessed(Head(7, {0: 3}, 5, lineage=ours), topic=None).level is OK
    for name, theirs in (("group", "other-colours"), ("topic_id", "id-2")):
        finding = assessed(Head(7, {0: 3}, 5, lineage=ours | {name: theirs}))
        assert (finding.level, finding.subject) == (ERROR, "snapshots of colours")
        assert f"{name} {theirs!r} there, {ours[name]!r} here" in finding.text
    other = ldp.Stream("colours", ldp.GRR("1/2", SERVED.stream.oracle.domain_size))
    recorded = {other.fingerprint.hex(): other.hashed.decode()}
    finding = assessed(Head(7, {0: 3}, 5, lineage=ours, documents=recorded))
    assert finding.level is ERROR
    assert 'epsilon: "1/2" → ' in finding.text
    assert (
        f"the recorded documents are {other.fingerprint.hex()}; the configuration names none" in finding.text
    )
    finding = assessed(Head(7, {0: 3}, 5, uncounted=(1,), lineage=ours))
    assert finding.level is WARNING
    assert "partition 1" in finding.text


def test_the_share_and_reasons_of_rejected_records_are_reported():
    report = np.array([(2,)], SERVED.stream.oracle.report_dtype)
    other = ldp.Stream("colours", ldp.GRR("2", 3), labels=SERVED.stream.labels)
    good, foreign = frames.encode(SERVED.stream, report), frames.encode(other, report)
    ours = f"fingerprint {SERVED.stream.fingerprint.hex()}; "
    for values, level, text in (
        ([], OK, "no record yet"),
        ([good] * 3, OK, "0 of the newest 3 records are rejected"),
        ([good, b"noise", good, good], WARNING, "25 % of the newest 4 records are rejected: version 1"),
        (
            [good] + [foreign] * 9999,
            WARNING,
            "99.9 % of the newest 10,000 records are rejected: fingerprint 9,999",
        ),
        ([foreign, foreign, None], ERROR, "all of the newest 3 records are rejected: fingerprint 2, empty 1"),
    ):
        columns = Columns.of(range(len(values)), [0] * len(values), values)
        decoded = frames.decode(SERVED.stream, columns.data, columns.begins, columns.ends)
        reasons = rejections.counted(decoded.verdicts)
        finding = assess_reports(SERVED, NewestReports(len(values), 0, reasons))
        assert (finding.level, finding.subject, finding.text) == (level, "reports of colours", ours + text)
        assert ("ldp-worker dead-letters" in finding.hint) == (level is not OK)
        assert ("ldp-worker document --stream colours" in finding.hint) == (foreign in values)
        assert "in force" not in finding.hint
    several = replace(SERVED, fleet=ldp.Fleet((SERVED.stream, other)))
    assert "before their document was in force" in assess_reports(several, NewestReports(2, 0, reasons)).hint


def test_keys_and_headers_of_the_newest_records_are_a_warning(monkeypatch):
    for with_key in (0, 3):
        monkeypatch.setattr(check_kafka, "newest_reports", lambda *_, n=with_key: NewestReports(4, n))
        _, *found = check_kafka._reports(CONFIG, SERVED, topics.Topic("id-1", 1, 1, {}), Head(), {})
        assert len(found) == (with_key > 0)
        for finding in found:
            assert (finding.level, finding.subject) == (WARNING, "keys of colours")
            assert "3 of the newest 4 records have a key or headers" in finding.text
            assert "traceparent" in finding.hint


@pytest.mark.parametrize(
    ("asked", "used", "level"),
    [
        (None, "/app/ldp/__pycache__", OK),
        ("/cache", "/cache/ldp_0a1b", OK),
        ("/cache", "/app/ldp/__pycache__", WARNING),
        (None, None, ERROR),
        ("/cache", None, ERROR),
    ],
)
def test_the_kernel_cache_is_reported(asked, used, level):
    finding = assess_cache(asked, used)
    assert finding.level is level
    assert (used or "no writable folder") in finding.text
    assert ("NUMBA_CACHE_DIR" in finding.hint) == (level is not OK)


def test_the_kernel_cache_folder_is_found():
    kernels.count_ones(np.zeros((1, 1), np.uint8))  # so that it is compiled
    assert any(Path(cache_folder()).glob("bits.count_ones-*.nbi"))


def test_findings_are_one_line_each_without_a_terminal(monkeypatch, capsys):
    long = [Finding(WARNING, "topic t", "x" * 300, "do " + "y" * 100), Finding(OK, "redis", "fine")]
    monkeypatch.delenv("COLUMNS", raising=False)
    show(render(long, one_line=piped()))
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"warning  topic t: {'x' * 300} -> do {'y' * 100}"
    assert second == "ok       redis: fine"


def counts(fields, offset_metadata=None, log=(0, 10), topic_id="id-1", published=0, counted=()):
    there, logs = cluster(reports=topics.Topic(topic_id, 2, 3, SOUND)), {"reports": {0: log, 1: log}}
    known = Cluster(there, logs, {"reports": offset_metadata or {}}, {}, {"reports": dict(counted)})
    return assess_counts(CONFIG, SERVED, known, fields, Head(4, {0: published}, 1))


DOCUMENTS = {SERVED.stream.fingerprint.hex(): Document.of(SERVED.stream)}


def written(partition: int, state: PartitionState, group: str = "g-colours") -> dict[str, str]:
    metadata = layout.initial(lineage_of(group, "id-1"), state)
    return layout.fields(metadata, layout.meta_key(SERVED.stream.name, partition))


def stored(offset: int, group: str = "g-colours", partition: int = 0) -> dict[str, str]:
    return written(partition, PartitionState(0, offset, DOCUMENTS), group)


def test_counts_of_a_newer_version_are_reported_as_newer():
    fields = stored(3)
    newer = fields | {"lineage": json.dumps(json.loads(fields["lineage"]) | {"layout": 2})}
    (finding,) = counts({0: newer, 1: stored(3, partition=1)})
    assert finding.level is ERROR
    assert finding.text == (
        "partition 0: they have layout 2, but this version reads up to 1: a newer version of ldp-worker wrote them"
    )
    assert finding.hint == "run that version or a newer one, which continues with them"
    spaced = json.dumps(json.loads(fields["lineage"]), indent=1)
    key = layout.meta_key(SERVED.stream.name, 0)
    whole = layout.fields(replace(layout.parse(fields, key), lineage=spaced), key)
    assert [one.level for one in counts({0: whole, 1: stored(3, partition=1)})] == [OK]


def test_counts_that_can_continue_are_fine():
    assert [f.level for f in counts({0: stored(10), 1: stored(0, partition=1)})] == [OK]
    assert [f.level for f in counts({}, offset_metadata={0: "claimed"})] == [OK]


OTHER_REDIS = "they were lost, or another Redis has them"


@pytest.mark.parametrize(
    ("found", "level", "message"),
    [
        ({"fields": {0: stored(5, group="other")}}, ERROR, "group"),
        ({"fields": {0: stored(5)}, "topic_id": "id-2"}, ERROR, "topic_id"),
        ({"fields": {0: stored(11)}}, ERROR, "truncated"),
        ({"fields": {0: stored(3)}, "log": (4, 10)}, WARNING, "deleted"),
        ({"fields": {}, "offset_metadata": {1: "counted"}}, ERROR, OTHER_REDIS),
        ({"fields": {}, "published": 3}, ERROR, f"published with counts up to offset 3: {OTHER_REDIS}"),
        ({"fields": {0: StateLost("of another type")}}, ERROR, "partition 0: of another type"),
        ({"fields": {0: stored(3)}, "log": (4, 10), "published": 4}, ERROR, "rolled back"),
        ({"fields": {0: {"offset": "5"}}}, ERROR, "cannot be read"),
        ({"fields": {0: stored(5)}, "counted": {0: 6}}, ERROR, "another Redis"),
        (
            {"fields": {0: stored(10, partition=1), 1: stored(2)}},
            ERROR,
            "partition 0, 1: the metadata in Redis is damaged, or of another partition",
        ),
    ],
)
def test_counts_that_cannot_continue_are_reported(found, level, message):
    (finding,) = counts(**found)
    assert (finding.level, message in finding.text) == (level, True)


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ("most_reports = 200", None, None),
        ("most_reports = 50\nrevision = 2", None, None),
        ("most_reports = 100", "which was replaced", "set streams.revision to 3"),
        ("most_reports = 100\nrevision = 1", "revision 1", "set streams.revision to 3"),
        ("most_reports = 100\nrevision = 2", "of the same revision", "set streams.revision to 3"),
        ("most_reports = 100\nrevision = 3", None, None),
    ],
)
def test_a_rule_older_than_the_recorded_one_is_a_warning(table, message, hint):
    config = parse(CONFIG_TEXT.replace("[[streams.queries]]", table + "\n[[streams.queries]]"))
    state = PartitionState.fresh(SERVED.fleet, 0, RequestedRule(1, RecordLimits(100, True, 16 << 20)))
    state.rules.append(Rule(5, 2, RecordLimits(50, True, 16 << 20)))
    fields = {partition: written(partition, state) for partition in (0, 1)}
    known = Cluster(cluster(), {"reports": {0: (0, 10), 1: (0, 10)}}, {"reports": {}})
    (finding,) = assess_counts(config, config.streams[0], known, fields, Head())
    if message is None:
        assert finding.level is OK
    else:
        assert finding.level is WARNING
        assert finding.text.startswith("partition 0, 1: counted by at most 50 reports per record")
        assert (message in finding.text, hint in finding.hint) == (True, True)


@pytest.mark.parametrize(
    ("recorded", "text", "level"),
    [
        (0, "fewest_new = 20\n", ERROR),
        (20, "fewest_new = 20\n", OK),
        (20, "", WARNING),
        (20, "fewest_new = 10\n", WARNING),
    ],
)
def test_larger_increments_of_the_same_revision_are_an_error(recorded, text, level):
    table = f"[snapshots]\n{text}\n[[streams]]\nrevision = 3"
    config = parse(CONFIG_TEXT.replace("[[streams]]", table, 1))
    limits = replace(config.streams[0].configured.limits, fewest_new=recorded)
    state = PartitionState.fresh(SERVED.fleet, 0, RequestedRule(3, limits))
    known = Cluster(cluster(), {"reports": {0: (0, 10), 1: (0, 10)}}, {"reports": {}})
    fields = {partition: written(partition, state) for partition in (0, 1)}
    (finding,) = assess_counts(config, config.streams[0], known, fields, Head())
    assert finding.level is level
    assert level is OK or finding.hint == "to apply it, set streams.revision to 4"


def test_a_fault_of_several_partitions_is_one_line():
    alike = counts({0: stored(5, group="other"), 1: stored(7, group="other", partition=1)})
    assert [f.text.split(": ")[0] for f in alike] == ["partition 0, 1"]
    different = counts({0: stored(5, group="other"), 1: stored(11, partition=1)})
    assert [f.text.split(": ")[0] for f in different] == ["partition 0", "partition 1"]
    (lost,) = counts({0: stored(3), 1: stored(10, partition=1)}, log=(4, 10))
    assert lost.text == "partition 0: the log deleted offset 3 before counting"
    (lost,) = counts({0: stored(3), 1: stored(10, partition=1)}, log=(5, 10))
    assert lost.text == "partition 0: the log deleted offsets 3 to 4 before counting"


def test_a_recorded_gap_still_in_the_log_is_named():
    state = PartitionState(0, 3, DOCUMENTS)
    state.skip(7)
    gap = written(0, state)
    assert [f.level for f in counts({0: gap, 1: stored(7, partition=1)}, log=(7, 10))] == [OK]
    (finding,) = counts({0: gap, 1: stored(7, partition=1)}, log=(2, 10))
    assert finding.level is WARNING
    assert finding.text == (
        "partition 0: recorded as a gap: offsets 3 to 6; the log begins at offset 2, so it has these records, but it"
        " lacks earlier records from offset 0 on, where counting began"
    )
    assert "another name" in finding.hint
    (finding,) = counts({0: gap, 1: stored(7, partition=1)})
    assert finding.text.endswith("the log begins at offset 0, so it has these records")
    assert finding.hint == (
        "stop the stream's workers, set recount_after = 4 for it, and start them: they count the partition again from"
        " offset 0 on"
    )
    windows = Windowing(("all", "1h"), grace=0, max_out_of_orderness=0)
    windowed = PartitionState.fresh(
        SERVED.fleet, 0, RequestedRule(1, RecordLimits(100, True, 16 << 20, windows))
    )
    windowed.skip(7)
    (finding,) = counts({0: written(0, windowed), 1: stored(7, partition=1)})
    assert finding.text.endswith("but final windows must not change")
    assert "another name" in finding.hint
    (finding,) = counts({0: gap, 1: stored(7, partition=1)}, log=(6, 10))
    assert finding.text.startswith("partition 0: recorded as a gap: offset 6;")


@pytest.mark.parametrize("protocol", ["olh", "pgr"])
@pytest.mark.parametrize("d", [3, 845, snapshot.INLINE, snapshot.INLINE + 1, 70_000])
def test_snapshot_messages_stay_within_the_stated_size(d, protocol):
    # counts that make long numbers: estimates of both signs with all digits
    stream = ldp.Stream(
        "s", ldp.oracle(protocol, epsilon="1", domain_size=d), labels=[f"värde {i}" for i in range(d)]
    )
    queries = [SetQuery("many", tuple(range(0, d, 2))), TopQuery("most", min(d, 400))]
    rule = {"offset": 2**63 - 1, "revision": 2**31 - 1, "most_reports": 2**31 - 1, "hamming_weight": False}
    rules = dict.fromkeys(range(50), [rule] * 2)
    cut = snapshot.Cut(dict.fromkeys(range(50), 2**63 - 1), {0: [(2**62, 2**63 - 1)] * 8}, rules=rules)
    bound = snapshot.largest_message(stream, queries, partitions=50)
    for n in (7, 10**9 + 7):
        estimate = estimated(stream.oracle, np.random.default_rng(3).integers(0, n + 1, d), n)
        parts = snapshot.encode(snapshot.take(stream, estimate, cut, 2**53, queries))
        largest = max(len(part.body) + len(part.key) for part in parts)
        assert largest <= bound
    # with 7 reports almost no number of poisoning reports has two digits, and ends are 0 or 1
    assert bound <= 2 * largest + 16_384


@pytest.mark.parametrize("what", ["recommendations", "top values"])
def test_snapshots_with_many_answers_stay_within_the_stated_size(what):
    d, n = 3000, 10**9
    stream = ldp.Stream("s", ldp.OLH(epsilon="1", domain_size=d))
    queries, more = [TopQuery("all", d)], {"methods": ["base"]}
    if what == "recommendations":
        queries = [SetQuery(f"q{i}", (i,)) for i in range(d)]
        recommended = {query.name: snapshot.Recommended("power-ns", 2**53) for query in queries}
        more = {"methods": ["base", "power-ns"], "recommended": recommended}
    estimate = estimated(stream.oracle, np.random.default_rng(3).integers(n // 4, n // 2, d), n)
    parts = snapshot.encode(snapshot.take(stream, estimate, snapshot.Cut({0: 1}, {}), 1, queries, **more))
    largest = max(len(part.body) for part in parts)
    assert largest <= snapshot.largest_message(stream, queries, partitions=1) <= 2 * largest


@pytest.mark.parametrize(
    ("fewest_new", "declared", "lines", "readers"),
    [
        (0, "", ["1", "not declared", "not declared"], None),
        (1, "", ["1", "not declared", "not declared"], None),
        (10_000, "", ["1", "not declared", "not declared"], "ε ≤ 0.004, δ = 1e-08"),
        (10_000, "fresh", ["1", "366", "366"], "ε ≤ 0.004, δ = 1e-08"),
        (
            10_000,
            "memoised",
            ["1", "1", "infinite"],
            "as against the operator, because memoised noise repeats",
        ),
    ],
)
def test_the_privacy_losses_of_each_stream(fewest_new, declared, lines, readers):
    privacy = f"{{unit = 'device', reports = 1, period = '24h', noise = '{declared}', horizon = '365d'}}"
    common = "epsilon = '1'\nprotocol = 'grr'\ndomain_size = 1024\n" + (
        f"privacy = {privacy}\n" if declared else ""
    )
    streams = [f"[[streams]]\nname = '{name}'\ntopic = '{name}'\n{common}" for name in "st"]
    config = parse(f"[snapshots]\nfewest_new = {fewest_new}\n{''.join(streams)}")
    losses = [
        loss if loss == "not declared" else "ε is infinite" if loss == "infinite" else f"ε ≤ {loss}"
        for loss in lines
    ]
    text = "against the operator, one report: {}; a value that stays: {}; any history: {}".format(*losses)
    expected = [text]
    if readers is not None:
        expected.append(
            f"one report, to a reader of snapshots: {readers}; to the operator: ε ≤ 1."
            f" The reader {ADVERSARIES['snapshots']}"
        )
    found = assess_privacy(config)
    assert [finding.text for finding in found] == 2 * expected
    assert [finding.subject for finding in found] == [f"privacy of {name}" for name in "st" for _ in expected]
    assert {finding.level for finding in found} == {Level.OK}


def test_the_privacy_loss_to_a_reader_of_shuffled_reports():
    stream = "[[streams]]\nname = 's'\ntopic = 't'\nepsilon = '1'\nprotocol = 'olh'\ndomain_size = 1024\n"
    (_, found) = assess_privacy(
        parse(f"snapshots.fewest_new = 1\n{stream}intake = 'i'\nshuffle_batch_size = 1000\n")
    )
    assert found.text == (
        "one report, to a reader of reports: ε ≤ 0.151, δ = 1e-08; to the operator: ε ≤ 1."
        f" The reader {ADVERSARIES['batches']}"
    )
    assert len(assess_privacy(parse(f"snapshots.fewest_new = 1\n{stream}"))) == 1
