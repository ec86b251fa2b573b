"""Every protocol from Kafka to snapshots on real services, all served by one worker, against their definitions.

What a report supports, and p and q, are worked out here from the papers' formulas, from the bytes on the wire and in
floats; nothing in this file asks the oracles.
"""

import itertools
import json
import math
from base64 import b64encode
from contextlib import closing
from fractions import Fraction
from uuid import uuid4

import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from ldp import frames
from ldp.oracles import ORACLES
from ldp.snapshot import Incomplete, assemble
from tests.integration.harness import METHODS, TIMEOUT_SECONDS, Worker, until
from worker import audit, check, config
from worker.kafka.client import topics
from worker.kafka.reports import sender
from worker.simulation.crowd import draw
from worker.simulation.records import records

pytestmark = pytest.mark.integration

STREAMS = {
    "grr": {"protocol": "grr", "epsilon": "3/2", "domain_size": 12},
    "olh": {"protocol": "olh", "epsilon": "1", "domain_size": 40},
    "blh": {"protocol": "olh", "epsilon": "1/2", "domain_size": 15, "g": 2},
    "oue": {"protocol": "oue", "epsilon": "1", "domain_size": 21},
    "sue": {"protocol": "sue", "epsilon": "2", "domain_size": 16},
    "subset-bits": {"protocol": "subset", "epsilon": "1", "domain_size": 30},
    "subset-indices": {"protocol": "subset", "epsilon": "3", "domain_size": 60},
    "hadamard": {"protocol": "hadamard", "epsilon": "1", "domain_size": 20},
    "pgr": {"protocol": "pgr", "epsilon": "1", "domain_size": 25},
}
PARTITIONS = 2


# --- the definitions ------------------------------------------------------------------------------------------


def supported(document, wire):
    """The values that a report supports, by its bytes."""
    values = range(document["domain_size"])
    number = int.from_bytes(wire, "little")
    match document["protocol"]:
        case "grr":
            return {number}
        case "olh":
            seed, bucket, g = number % 2**32, number >> 32, document["g"]
            return {v for v in values if mul32(seed, v) * g // 2**32 == bucket}
        case "oue" | "sue":
            return {v for v in values if number >> v & 1}
        case "subset":
            return set(wire) if by_indices(document) else {v for v in values if number >> v & 1}
        case "hadamard":
            return {v for v in values if (number & v + 1).bit_count() % 2 == 0}
        case "pgr":
            points = projective(document["prime"], document["dimension"])
            return {v for v in values if np.dot(points[v], points[number]) % document["prime"] == 0}


def mul32(seed, v):
    def mixed(x):
        x = (x ^ x >> 16) * 0x7FEB352D % 2**32
        x = (x ^ x >> 15) * 0x846CA68B % 2**32
        return x ^ x >> 16

    e = mixed(v + 0x9E3779B1)
    b = mixed((e + 0x9E3779B1) % 2**32)
    c = mixed((b + 0x9E3779B1) % 2**32) & 0xCCCCCCCC | 0x11111111
    y = (seed ^ e) * (0xC2B2AE3D + 0x78DDE6C4 * v) % 2**32
    return (y ^ y >> 11 ^ b) * c % 2**32


def by_indices(document):
    return document["k"] <= -(-document["domain_size"] // 8)  # of one byte each, for d up to 256


def projective(prime, dimension):
    """The points in their order: the vectors whose first coordinate that is not 0 is 1."""
    vectors = itertools.product(range(prime), repeat=dimension)
    return [v for v in vectors if next(filter(None, v), None) == 1]


def probabilities(document):
    """P and q."""
    e = math.exp(Fraction(document["epsilon"]))
    d = document["domain_size"]
    match document["protocol"]:
        case "grr":
            return e / (e + d - 1), 1 / (e + d - 1)
        case "olh":
            return e / (e + document["g"] - 1), 1 / document["g"]
        case "oue":
            return 1 / 2, 1 / (e + 1)
        case "sue":
            return e**0.5 / (e**0.5 + 1), 1 / (e**0.5 + 1)
        case "subset":
            k = document["k"]
            p = k * e / (k * e + d - k)
            return p, (p * (k - 1) + (1 - p) * k) / (d - 1)
        case "hadamard":
            return e / (e + 1), 1 / 2
        case "pgr":
            points, one, two = ((document["prime"] ** (document["dimension"] - i) - 1) for i in range(3))
            weight = (e - 1) * one + points
            return e * one / weight, ((e - 1) * two + one) / weight


# --- what is sent ---------------------------------------------------------------------------------------------


def good(stream, rng):
    """Records in every form, and the bytes of the reports in them."""
    d, reports = stream.oracle.domain_size, []

    def draw(n):
        drawn = stream.oracle.perturb(np.minimum(rng.geometric(0.2, n) - 1, d - 1), rng=rng)
        reports.extend(report.tobytes() for report in drawn)
        return drawn

    records = [frames.encode(stream, draw(1)) for _ in range(40)]
    records += [frames.encode_json(stream, draw(1)) for _ in range(40)]
    records += [frames.encode(stream, draw(20)) for _ in range(10)]
    records += [frames.encode_json(stream, draw(20)) for _ in range(10)]
    return records, reports


def bad(stream, reports):
    """Malformed records, by the reason that each has to be rejected for."""
    document, mark, wire = stream.document(), stream.fingerprint, reports[0]
    outside = out_of_range(document, len(wire))

    def said(*items):
        return json.dumps({"fingerprint": mark.hex(), "reports": items}).encode()

    numbers = document["protocol"] in ("grr", "olh", "hadamard", "pgr")
    records = {
        "empty": [b""],
        "version": [b"\x02" + mark + wire, b"noise"],
        "length": [b"\x01" + mark[:2], b"\x01" + mark, said()],
        "fingerprint": [b"\x01" + bytes(4) + wire],
        "json": [said(True), said(1.5), said(b64encode(wire).decode() if numbers else 1), said()[:-1]],
        "range": [b"\x01" + mark + wire + outside] if outside else [],
    }
    if outside and not numbers:
        records["range"].append(said(b64encode(wire).decode(), b64encode(outside).decode()))
    if not numbers:
        records["json"].append(said(b64encode(wire + b"\0").decode()))
        records["length"].append(b"\x01" + mark + wire + wire[:-1])
    return records


def out_of_range(document, size):
    """The bytes of a report that the protocol does not allow, if there are any."""
    d = document["domain_size"]
    match document["protocol"]:
        case "grr":
            return bytes([d])
        case "olh":
            return bytes([0, 0, 0, 0, document["g"]])
        case "oue" | "sue":
            return b"\0" * (size - 1) + b"\x80" if d % 8 else b""
        case "subset":  # not ascending, or no bit
            return bytes(size)
        case "hadamard":
            return bytes([1 << d.bit_length()])
        case "pgr":
            return bytes([len(projective(document["prime"], document["dimension"]))])


# --- the test -------------------------------------------------------------------------------------------------


def configure(path, kafka, redis_url, streams):
    name = path.stem
    lines = [
        f'group = "{name}"',
        "commit_every_seconds = 0.2",
        f'kafka.bootstrap_servers = "{kafka}"',
        f'redis.url = "{redis_url}"',
        'http = {host = "127.0.0.1", port = 0}',
        f'snapshots = {{topic = "{name}-snapshots", every_seconds = 0.5}}',
        f'dead_letters.topic = "{name}-dead-letters"',
    ]
    for stream, table in streams.items():
        keys = {"name": f"{name}-{stream}", "topic": f"{name}-{stream}-reports"} | table
        lines += ["[[streams]]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    return config.load(path, {})


def test_one_worker_serves_every_protocol(kafka, redis_url, tmp_path):
    assert {table["protocol"] for table in STREAMS.values()} == set(ORACLES)
    toml = tmp_path / f"p{uuid4().hex[:10]}.toml"
    configuration = configure(toml, kafka, redis_url, STREAMS)
    served = dict(zip(STREAMS, configuration.streams, strict=True))
    assert by_indices(served["subset-indices"].stream.document())
    assert not by_indices(served["subset-bits"].stream.document())
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        topics.create(admin, configuration, PARTITIONS, 1)
    findings = check.findings(configuration)
    assert [finding for finding in findings if finding.level is check.Level.ERROR] == []

    sent, malformed, ends = {}, {}, {}
    with closing(KafkaProducer(bootstrap_servers=kafka, linger_ms=5)) as producer:
        futures = []
        for name, one in served.items():
            rng = np.random.default_rng(20_200_616)
            records, sent[name] = good(one.stream, rng)
            malformed[name] = bad(one.stream, sent[name])
            records += itertools.chain.from_iterable(malformed[name].values())
            for i, at in enumerate(rng.permutation(len(records))):
                futures.append(producer.send(one.topic, value=records[at], partition=i % PARTITIONS))
            ends[name] = len(records)
        producer.flush(TIMEOUT_SECONDS)
        for future in futures:
            future.get(0)

    worker = Worker.launch(toml, tmp_path / "worker.log")
    try:
        newest = covered(kafka, configuration, ends, worker)
        for name, one in served.items():
            document, n = one.stream.document(), len(sent[name])
            # the estimate, by the definition
            counts = np.zeros(document["domain_size"])
            for report in sent[name]:
                counts[list(supported(document, report))] += 1
            p, q = probabilities(document)
            assert newest[name].reports == n
            assert list(newest[name].bodies) == METHODS
            found = newest[name].bodies["base"].frequencies
            np.testing.assert_allclose(found, (counts / n - q) / (p - q), rtol=1e-9, atol=1e-12, err_msg=name)
            # the recount
            verdict = audit.verify(one, configuration)
            assert (verdict.difference, verdict.lag, verdict.reports) == (None, 0, n), name
            rejected = {}
            for row in verdict.partitions:
                for reason, count in row.rejected.items():
                    rejected[reason] = rejected.get(reason, 0) + count
            assert rejected == {reason: len(some) for reason, some in malformed[name].items() if some}, name
            expected = sum(rejected.values())
            assert worker.metric("records_total", stream=one.stream.name, outcome="rejected") == expected
            assert worker.metric("dead_letters_total", stream=one.stream.name) == expected
        assert worker.terminate() == 0
    finally:
        worker.kill()
        print("\n".join(worker.log.read_text(errors="replace").splitlines()[-40:]))


@pytest.mark.long
def test_reports_of_a_large_domain(kafka, redis_url, tmp_path):
    """131,072 bytes a report: simulated, counted and recounted; too many of them in a record are refused."""
    d, users = 1 << 20, 40
    toml = tmp_path / f"p{uuid4().hex[:10]}.toml"
    configuration = configure(
        toml, kafka, redis_url, {"oue": {"protocol": "oue", "epsilon": "1", "domain_size": d}}
    )
    (one,) = configuration.streams
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        topics.create(admin, configuration, PARTITIONS, 1)
    values = draw(np.arange(1, d + 1), users, seed=1).values
    too_large = records(one.stream, values, seed=1, batch=8)  # 1 MiB and the frame's header
    with pytest.raises(sender.SendError, match="a report has 131072 bytes"):
        sender.send(configuration, one, too_large)
    mixed = records(one.stream, values, seed=1, json_share=0.3, malformed_share=0.5)
    sent = sender.send(configuration, one, mixed)
    assert (sent.reports, sent.records) == (users, users)
    assert sent.malformed > 0
    worker = Worker.launch(toml, tmp_path / "worker.log")
    try:

        def counted():
            assert worker.alive()
            verdict = audit.verify(one, configuration)
            return verdict if verdict.lag == 0 else None

        verdict = until(counted, "all is counted")
        assert (verdict.difference, verdict.reports, verdict.malformed) == (None, users, sent.malformed)
    finally:
        worker.kill()
        print("\n".join(worker.log.read_text(errors="replace").splitlines()[-40:]))


def covered(kafka, configuration, ends, worker):
    """Waits until the newest snapshot of every stream covers all that was sent; returns them."""
    partition, received = TopicPartition(configuration.snapshots.topic, 0), {}
    settings = {"group_id": None, "enable_auto_commit": False, "isolation_level": "read_committed"}
    with closing(KafkaConsumer(bootstrap_servers=kafka, **settings)) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)

        def whole():
            assert worker.alive()
            for records in consumer.poll(50).values():
                for record in records:
                    received[record.key.decode()] = (dict(record.headers), record.value)
            found = {}
            for name, one in zip(ends, configuration.streams, strict=True):
                if f"{one.stream.name}/head" not in received:
                    return None
                try:
                    found[name] = assemble(one.stream.name, received)
                except Incomplete:
                    return None  # the rest of it is in the next poll
                if sum(found[name].cut.offsets.values()) < ends[name]:
                    return None
            return found

        return until(whole, "a snapshot of all that was sent, for every stream")
