"""Two browsers' own noise, counted: made in Node as it is published, wrapped, and through Kafka, worker and Redis.

What comes out is held against the users' values, which only this test knows, within intervals that one of all leaves
once in 10⁶ runs; against the W3C's own procedure, run in Node over the same records; and against a recount.
"""

import json
from collections import Counter
from contextlib import closing
from uuid import uuid4

import numpy as np
import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaProducer

from ldp.browsers import confidence_frame, unary_frame
from ldp.cli import cli
from ldp.client import Client
from tests.integration.harness import TIMEOUT_SECONDS, Worker
from tests.integration.test_protocols import PARTITIONS, configure, covered
from tests.unit.ldp.test_browsers import browser
from worker import audit, check
from worker.kafka.client import topics

pytestmark = pytest.mark.integration

RATES = {"0.2": 20_000, "0.4994798": 60_000, "0.75": 40_000}
HIGH = {"0.2": 0.1, "0.4994798": 0.5, "0.75": 0.9}
"""The share of "high" goes with the rate: an estimate that weighs the rates by their noise would be off."""
LEVEL = 1 - 1e-7  # of ten intervals
STREAMS = {
    "firefox": {"protocol": "unary", "p": "0.75", "q": "0.1", "domain_size": 8},
    "navigation": {"protocol": "response", "rates": [*RATES], "labels": ["low", "high"]},
}
USERS = 100_000
MOST = 1000


def of_firefox(rng):
    """The users' values, and the bits that they send."""
    values = np.minimum(rng.geometric(0.4, USERS) - 1, 7)
    return values, browser("firefox", "8", "0.75", "0.1", lines=values)


def of_navigation(rng):
    """The users' values, and the confidences that they send."""
    told = [
        (["low", "high"][int(high)], rate) for rate, n in RATES.items() for high in rng.random(n) < HIGH[rate]
    ]
    told = [told[i] for i in rng.permutation(len(told))]
    values = np.array([value == "high" for value, _ in told], int)
    return values, browser("navigation", lines=[f"{value} {rate}" for value, rate in told])


@pytest.mark.long
def test_what_browsers_send_is_counted(kafka, redis_url, tmp_path):
    rng = np.random.default_rng(20_261_122)
    toml = tmp_path / f"b{uuid4().hex[:10]}.toml"
    configuration = configure(toml, kafka, redis_url, STREAMS)
    firefox, navigation = configuration.streams
    values, texts = of_firefox(rng)
    trusted, records = of_navigation(rng)
    made = {
        "firefox": [unary_frame(firefox.stream, text) for text in texts],
        "navigation": [confidence_frame(navigation.stream, json.loads(record)) for record in records],
    }
    truth = {"firefox": np.bincount(values, minlength=8), "navigation": np.bincount(trusted, minlength=2)}
    unknown = [
        confidence_frame(navigation.stream, {"value": "low", "randomizedTriggerRate": 0.3}) for _ in range(5)
    ]
    packed = {
        name: Client(one.stream.document()).pack(made[name], most_reports=MOST)
        for name, one in zip(STREAMS, configuration.streams, strict=True)
    }
    sent = {"firefox": packed["firefox"], "navigation": packed["navigation"] + unknown}
    with closing(KafkaAdminClient(bootstrap_servers=kafka)) as admin:
        topics.create(admin, configuration, PARTITIONS, 1)
    findings = check.findings(configuration)
    assert [finding for finding in findings if finding.level is check.Level.ERROR] == []
    with closing(KafkaProducer(bootstrap_servers=kafka, linger_ms=5)) as producer:
        futures = [
            producer.send(one.topic, value=frame, partition=i % PARTITIONS)
            for name, one in zip(STREAMS, configuration.streams, strict=True)
            for i, frame in enumerate(sent[name])
        ]
        producer.flush(TIMEOUT_SECONDS)
        for future in futures:
            future.get(0)

    worker = Worker.launch(toml, tmp_path / "worker.log")
    try:
        newest = covered(kafka, configuration, {name: len(some) for name, some in sent.items()}, worker)
        for name, one in zip(STREAMS, configuration.streams, strict=True):
            snapshot, n = newest[name], len(made[name])
            assert snapshot.reports == n
            low, high = snapshot.estimate().interval(LEVEL)
            share = truth[name] / n
            assert ((low < share) & (share < high)).all(), (low, share, high)
            assert (high - low < 0.1).all()
            aggregated(one.stream, packed[name], snapshot, tmp_path)
            verdict = audit.verify(one, configuration)
            assert (verdict.difference, verdict.lag, verdict.reports) == (None, 0, n)
        rejected = Counter()
        for row in verdict.partitions:  # of the navigation
            rejected.update(row.rejected)
        assert rejected == {"rate": 5}
        assert worker.metric("dead_letters_total", stream=navigation.stream.name) == 5

        base = newest["navigation"].bodies["base"]
        # by the W3C's procedure, record by record
        weights = [float(line) for line in browser("weights", lines=records)]
        assert base.frequencies == pytest.approx(weights, rel=0, abs=1e-12)
        said = Counter(
            (json.loads(record)["randomizedTriggerRate"], json.loads(record)["value"]) for record in records
        )
        assert base.by_rate.tolist() == [
            [said[float(rate), value] for value in ("low", "high")] for rate in RATES
        ]
        # and by inverse variance: its own interval does not hold here, and it says so
        combined = newest["navigation"].estimate().combined(LEVEL)
        assert not combined.low[1] < truth["navigation"][1] / len(records) < combined.high[1]
        assert combined.alike < 1e-9
        assert newest["firefox"].epsilon == "3295837/1000000"  # ln 27
        assert newest["navigation"].epsilon == "87889/40000"  # ln 9
        assert worker.terminate() == 0
    finally:
        worker.kill()
        print("\n".join(worker.log.read_text(errors="replace").splitlines()[-40:]))


def aggregated(stream, packed, snapshot, folder):
    """The same frames through `ldp aggregate`: the same numbers to the last bit."""
    document, lines = folder / f"{stream.name}.json", folder / f"{stream.name}.jsonl"
    document.write_text(json.dumps(stream.document()))
    client = Client(stream.document())
    lines.write_bytes(b"\n".join(client.pack(packed, most_reports=MOST, as_json=True)) + b"\n")
    done = CliRunner().invoke(cli, ["aggregate", "--document", str(document), str(lines), "--method", "base"])
    assert done.exit_code == 0, done.output
    bodies = [json.loads(line) for line in done.stdout.splitlines()]
    (base,) = [body for body in bodies if body.get("method") == "base"]
    assert base["frequencies"] == snapshot.bodies["base"].frequencies.tolist()
