"""The page's server: a real HTTP server and the real follower, on a snapshot topic in memory."""

import contextlib
import csv
import gzip
import http.client
import io
import json
import socket
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from email.utils import parsedate_to_datetime
from urllib.parse import quote

import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.snapshot import Closed, Cut, Period, PrivacyLoss
from tests.support.tables import rows
from worker.config import parse
from worker.http import answers, connections, documents, page
from worker.http import server as health
from worker.http.answers import Packed
from worker.http.files import File
from worker.http.page import Page
from worker.http.streams import Streams
from worker.kafka.snapshots import follower as follower_module
from worker.kafka.snapshots import reader as reader_module
from worker.kafka.snapshots.follower import Follower
from worker.kafka.snapshots.index import IndexEntry, NotRead, SnapshotIndex
from worker.observe.metrics import Metrics

HOUR = 3_600_000
LABELS = ("red", "gr\u202een", "<script>alert(1)</script>", "blue event: x")
CONFIG = parse(
    "".join(
        f'[[streams]]\nname = "{name}"\ntopic = "{name}-reports"\nprotocol = "grr"\nepsilon = "1"\n{more}\n'
        for name, more in (
            ("s", f'labels = {json.dumps(LABELS)}\nwindows = ["all", "1h"]'),
            ("t.2", "domain_size = 9000"),
        )
    )
)
PARTS = [snapshot.part_of("s", segment="DE"), f"s@{CONFIG.streams[0].stream.fingerprint.hex()}"]
S, T = (served.stream for served in CONFIG.streams)
QUERIES = (ldp.query.SetQuery("two", (0, 2)), ldp.query.TopQuery("most", 2))
CLOSED = {"1h": Closed(0, (), ())}
"""Head entries of windows without retention."""
Record = namedtuple("Record", "key value headers offset")
WAIT = 60


def until(true, what):
    deadline = time.monotonic() + WAIT
    while not (found := true()):
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
    return found


def hour(start, *, final=False):
    return Period("1h", start * HOUR, (start + 1) * HOUR, final)


def taken(stream=S, sequence=1, window=snapshot.ALL_TIME, first=40):
    counts = np.full(stream.oracle.domain_size, 10)
    counts[0] = first
    estimate = stream.oracle.estimate(counts, int(counts.sum()))
    cut = Cut({0: sequence, 1: 7}, {}, progress=CLOSED if stream is S else {})
    queries, identity = QUERIES if stream is S else (), f"{sequence:032x}"
    return snapshot.take(
        stream, estimate, cut, sequence, queries, window=window, identity=identity, published=1000 * sequence
    )


class Log:
    """A snapshot topic in memory, whose records come a few a poll; and how it was read."""

    def __init__(self):
        self.records, self.refuses = [], None
        self.connected, self.closed, self.sought = 0, 0, 0

    def publish(self, *many, gone=()):
        for one in many:
            parts = (snapshot.encode if one.window == snapshot.ALL_TIME else snapshot.encode_window)(one)
            for part in parts:
                self.add(part.key, part.body or None, part.headers(one.sequence))
        for window in gone:
            for part in snapshot.delete_window(many[0], window):
                self.add(part.key, None, part.headers(many[0].sequence))

    def add(self, key, value, headers=()):
        self.records.append(Record(key.encode(), value, list(headers), len(self.records)))

    def connect(self):
        if self.refuses is not None:
            raise self.refuses
        self.connected += 1
        return Consumer(self)


class Consumer:
    def __init__(self, log):
        self._log, self._at = log, 0

    def assign(self, partitions):
        (self._partition,) = partitions

    def seek_to_beginning(self, partition):
        self._at = 0

    def seek(self, partition, offset):
        self._at = offset
        self._log.sought += 1

    def position(self, partition):
        return self._at

    def end_offsets(self, partitions):
        return {self._partition: len(self._log.records)}

    def poll(self, timeout_ms, max_records=7):
        came = self._log.records[self._at : self._at + min(7, max_records)]
        self._at += len(came)
        if not came:
            time.sleep(0.01)
        return {self._partition: came} if came else {}

    def close(self):
        self._log.closed += 1


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def metrics():
    metrics = Metrics()
    for stream in (S, T):
        metrics.begin(stream.name, [stream.fingerprint.hex()])
    metrics.owned.labels("s", "1").set(1)
    metrics.lag.labels("s", "1").set(4)
    metrics.records.labels("s", "accepted").inc(12)
    metrics.rejected.labels("s", "json").inc(3)
    return metrics


@pytest.fixture
def served(log, metrics, monkeypatch):
    """A server of the page on the topic; gives its port."""
    files = {
        "index.html": File(Packed.of(b"<!doctype html>"), "text/html; charset=utf-8", "a" * 32),
        "page.js": File(Packed.of(b"// no more"), "text/javascript; charset=utf-8", "b" * 32),
    }
    monkeypatch.setattr("worker.http.page.pages", lambda: files)
    with serving(log, metrics) as (port, _):
        yield port


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A request, and a snapshot that is read for it, may take as long as a test waits."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 2.0 * WAIT)
    monkeypatch.setattr(answers, "MAKING_SECONDS", 2.0 * WAIT)
    monkeypatch.setattr(answers, "_PAUSES", 0)
    monkeypatch.setattr("worker.kafka.snapshots.follower._READ_SECONDS", float(WAIT))


class Patient(Follower):
    """Waits for the topic, and for a snapshot, as long as a test does."""

    def find(self, stream, window=snapshot.ALL_TIME.name, start=None, seconds=WAIT):
        return super().find(stream, window, start, seconds)

    def read(self, stream, whole, seconds=WAIT):
        return super().read(stream, whole, seconds)


def ready():
    return False, {"streams": {"s": "serving", "t.2": "joining"}}


@contextlib.contextmanager
def paged(log, metrics, idle=300.0, kind=Patient):
    """A page, and what follows the topic for it."""
    follower = kind(CONFIG, log.connect, idle)
    try:
        streams = Streams(CONFIG, metrics.registry, ready, follower)
        yield Page(streams, follower, ["s", "t.2"], PARTS), follower
    finally:
        follower._idle_seconds = 0.0  # without further requests


@contextlib.contextmanager
def serving(log, metrics, idle=300.0, kind=Patient):
    """A served page: its port, and its follower of the topic."""
    with paged(log, metrics, idle, kind) as (page, follower):
        server = health.HttpServer("127.0.0.1", 0, metrics.registry, lambda: (True, {}), ready, page)
        try:
            yield server.server_port, follower
        finally:
            server.shutdown()


Reply = namedtuple("Reply", "status headers body")


def ask(port, path, method="GET", **headers):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)) as connection:
        connection.request(
            method, path, headers={name.replace("_", "-"): said for name, said in headers.items()}
        )
        reply = connection.getresponse()
        return Reply(reply.status, reply.headers, reply.read())


def said(port, path):
    reply = ask(port, path)
    assert reply.status == 200, reply.body
    assert reply.headers["Content-Type"] == "application/json"
    return json.loads(reply.body)


# --- files


def test_files_have_a_content_security_policy_without_other_origins(served):
    for path, kind in (
        ("/", "text/html; charset=utf-8"),
        ("/page/page.js", "text/javascript; charset=utf-8"),
    ):
        reply = ask(served, path)
        assert (reply.status, reply.headers["Content-Type"]) == (200, kind)
        assert reply.headers["Content-Security-Policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        again = ask(served, path, If_None_Match=reply.headers["ETag"])
        assert (again.status, again.body) == (304, b"")
        assert ask(served, path, If_None_Match='"another"').status == 200
        head = ask(served, path, "HEAD")
        assert (head.status, head.body, head.headers["ETag"]) == (200, b"", reply.headers["ETag"])


@pytest.mark.parametrize(
    "path",
    ["/page/", "/page/x.js", "/page/../server.py", "/page/%2e%2e/server.py"],
)
def test_other_files_are_not_found(served, path):
    assert ask(served, path).status == 404


def test_gzip_is_used_on_request_and_keeps_the_entity_tag(served, log):
    log.publish(taken())
    path = "/streams/s/snapshot"
    packed, plain = (
        ask(served, path, Accept_Encoding="br, gzip"),
        ask(served, path, Accept_Encoding="br"),
    )
    assert (packed.headers["Content-Encoding"], plain.headers["Content-Encoding"]) == ("gzip", None)
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["ETag"] != plain.headers["ETag"]
    for known in (packed, plain):
        assert ask(served, path, Accept_Encoding="gzip", If_None_Match=known.headers["ETag"]).status == 304


def test_probes_and_metrics_share_the_port(served):
    assert ask(served, "/healthz").status == 200
    assert ask(served, "/readyz").status == 503
    assert b"ldp_worker_reports_total" in ask(served, "/metrics").body
    assert ask(served, "/healthz?from=probe").status == 200
    assert b"ldp_worker_reports_total" in ask(served, "/metrics?job=a").body
    elsewhere = ask(served, "/nothing")
    assert elsewhere.status == 404
    assert elsewhere.body.endswith(b"the paths are /, /streams, /events, /metrics, /healthz, /readyz\n")


@pytest.mark.parametrize("target", ["http://[/streams", "//[::1/streams", "", "*"])
def test_an_invalid_target_is_answered_without_output_on_stderr(served, target, capfd):
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", served), timeout=WAIT) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as answer:
            assert answer.readline().split()[1] in (b"400", b"404")
    assert capfd.readouterr().err == ""


# --- streams


def test_streams_are_listed_with_their_progress(served, log):
    log.publish(taken(sequence=3), taken(window=hour(2)), taken(window=hour(1, final=True)))
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    s, t = said(served, "/streams")
    newest = taken(sequence=3)
    assert s == {
        "name": "s",
        "fingerprint": S.fingerprint.hex(),
        "protocol": "grr",
        "epsilon": "1/1",
        "domain_size": 4,
        "topic": "s-reports",
        "windows": ["all", "1h"],
        "every_seconds": 5.0,
        "published": 3000,
        "privacy_loss": None,
        "state": "serving",
        "rate": s["rate"],
        "lag": 4,
        "rejected": s["rejected"],
        "accepted": 12,
        "partitions": {"0": "elsewhere", "1": "here"},
        "newest": {
            "sequence": 3,
            "reports": 70,
            "complete": True,
            "standard_error": newest.std_error,
        },
        "available": {
            "all": [None],
            "1h": [
                {"start": n * HOUR, "end": (n + 1) * HOUR, "final": n == 1, "reports": 70, "complete": True}
                for n in (1, 2)
            ],
        },
        "parts": [],
        "hidden": 0,
    }
    assert {reason: n for reason, n in s["rejected"].items() if n} == {"json": 3}
    assert (t["state"], t["newest"], t["lag"], t["available"]) == ("joining", None, None, {"all": []})
    assert t["published"] is None


OLDER = ldp.Stream("s", ldp.OUE("1", 2), (LABELS[0], "violet"))
FLEET = ldp.Fleet((S, OLDER))


@pytest.fixture
def declared(monkeypatch):
    parts = property(lambda served: PARTS if served.name == "s" else [])
    monkeypatch.setattr("worker.config.Served.parts", parts)


@pytest.fixture
def parted(declared, served, log):
    """A topic with a stream of two documents and one segment; returns the port and the snapshot."""
    estimates = [S.oracle.estimate([5, 4, 3, 8], 20), OLDER.oracle.estimate([6, 3], 10)]
    cut = Cut({0: 30}, {}, progress=CLOSED, segments={"DE": 12}, hidden=18)
    common = {"cut": cut, "sequence": 4, "identity": f"{4:032x}", "published": 4000}
    whole = snapshot.take(FLEET, FLEET.estimate(estimates), **common)
    segment = FLEET.estimate([S.oracle.estimate([3, 3, 3, 3], 12), None])
    parts = [
        snapshot.take(FLEET, segment, part=PARTS[0], methods=["base"], **common),
        snapshot.take(S, estimates[0], part=PARTS[1], methods=["base"], **common),
        snapshot.take(S, estimates[0], part=PARTS[1], methods=["base"], window=hour(1, final=True), **common),
    ]
    log.publish(whole, *parts)
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    return served, whole


def test_a_stream_lists_its_parts_and_serves_them(parted, listen):
    port, _ = parted
    stream, _ = said(port, "/streams")
    assert stream["parts"] == [
        {"name": PARTS[1], "document": S.fingerprint.hex(), "reports": 20, "retired": False},
        {"name": f"s@{OLDER.fingerprint.hex()}", "document": OLDER.fingerprint.hex(), "reports": 10}
        | {"retired": False},
        {"name": "s:DE", "segment": "DE", "reports": 12},
    ]
    assert stream["hidden"] == 18
    events = listen(f"/events?stream={quote(PARTS[1])}&window=1h")
    (part,) = until(lambda: [listed[0]["part"] for listed in events.of("streams")], "the streams")
    assert part["name"] == PARTS[1]
    assert [one["start"] for one in part["available"]["1h"]] == [HOUR]
    excerpt = said(port, f"/streams/{quote(PARTS[1])}/excerpt")
    assert (excerpt["stream"], excerpt["reports"], excerpt["documents"]) == (PARTS[1], 20, [])
    assert said(port, "/streams/s:DE/snapshot")["reports"] == 12
    assert ask(port, "/streams/s:FR/excerpt").status == 404


def test_unknown_labels_of_a_population_are_null(parted):
    port, whole = parted
    excerpt = said(port, "/streams/s:DE/excerpt?sort=value")
    assert [row["label"] for row in excerpt["values"]] == [*LABELS, "violet"]
    violet = excerpt["values"][-1]
    assert {*violet["frequencies"].values(), violet["low"], violet["high"]} == {None}
    assert [row["known"] for row in excerpt["values"]] == [12, 12, 12, 12, 0]
    excerpt = said(port, "/streams/s/excerpt?sort=value")
    assert [row["known"] for row in excerpt["values"]] == [30, 20, 20, 20, 10]
    assert [one["epsilon"] for one in excerpt["documents"]] == ["1/1", "1/1"]
    for row, share in zip(excerpt["values"], whole.bodies["base"].frequencies, strict=True):
        assert row["frequencies"]["base"] == share
    assert "documents" not in said(port, "/streams/s/snapshot")["methods"]["base"]
    refused = ask(port, "/streams/s/excerpt?of=population")
    assert (refused.status, "several documents" in refused.body.decode()) == (400, True)


def test_late_is_served_as_a_window_without_times(served, log):
    log.publish(taken(sequence=3), taken(sequence=3, window=snapshot.LATE, first=5), taken(window=hour(1)))
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    s, t = said(served, "/streams")
    assert (s["windows"], s["available"]["late"], t["windows"]) == (["all", "1h", "late"], [None], ["all"])
    reply = ask(served, "/streams/s/values.csv?window=late")
    assert reply.headers["Content-Disposition"].endswith('"s-late-3.csv"')
    excerpt = said(served, "/streams/s/excerpt?window=late")
    assert excerpt["window"] == {"name": "late", "start": None, "end": None, "final": False}
    assert (excerpt["reports"], excerpt["values"][0]["label"]) == (35, S.labels[1])
    assert said(served, "/streams/s/excerpt")["reports"] == 70
    assert ask(served, "/streams/s/excerpt?window=late&start=0").status == 404


def test_a_stream_has_the_privacy_loss_of_its_head(served, log):
    loss = PrivacyLoss(100, 1.0, 0.5, 1e-8)
    shown = taken(sequence=3)
    log.publish(replace(shown, cut=replace(shown.cut, privacy_loss=loss)))
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    assert said(served, "/streams")[0]["privacy_loss"] == asdict(loss)


def test_a_stream_that_waits_for_reports_has_no_interval_of_snapshots(log, metrics):
    content = CONFIG.snapshots.model_copy(update={"fewest_new": 100})
    delayed = replace(CONFIG, snapshots=content)
    streams = Streams(delayed, metrics.registry, ready, Patient(delayed, log.connect))
    assert [stream["every_seconds"] for stream in streams.document()] == [None, None]


def test_a_head_without_a_snapshot_updates_the_partitions(served, log):
    log.publish(
        taken(),
        snapshot.announce(S, Cut({0: 5, 1: 7, 2: 0}, {}, progress=CLOSED), 4, None, "0" * 32),
        taken(window=hour(1)),
    )
    until(lambda: len(said(served, "/streams")[0]["partitions"]) == 3, "the head is read")
    stream = said(served, "/streams")[0]
    assert stream["partitions"] == {"0": "elsewhere", "1": "here", "2": "elsewhere"}
    assert (stream["newest"], stream["available"]["all"], len(stream["available"]["1h"])) == (None, [], 1)
    assert ask(served, "/streams/s/snapshot").status == 404
    assert tuple(said(served, "/streams/s/snapshot?window=1h")["labels"]) == LABELS


def test_the_rate_covers_the_last_seconds(metrics):
    now = [100.0]
    nothing = type("Nothing", (), {"newest": lambda self, stream: {}})()
    streams = Streams(CONFIG, metrics.registry, lambda: (True, {}), nothing, lambda: now[0])
    assert streams.document()[0]["rate"] is None
    for _ in range(20):
        now[0] += 2.0
        metrics.reports.labels("s").inc(100)
        rate = streams.document()[0]["rate"]
    assert rate == 50.0
    now[0] += 2.0
    metrics.reports.labels("s").inc(1100)
    assert streams.document()[0]["rate"] == pytest.approx(150.0, rel=0.2)
    now[0] += 1000.0  # without a request
    assert streams.document()[0]["rate"] is None


# --- snapshots


def whole(one):
    """Expected document of a snapshot, from its published messages."""
    parts = {part.key: part for part in snapshot.encode(one, inline=1 << 30)}
    head = json.loads(parts.pop("s/head").body)
    domain = json.loads(parts.pop("s/domain").body)
    bodies = {key.rpartition("/")[2]: json.loads(part.body) for key, part in parts.items()}
    of_all = ("document", "standard_error", "level")
    base = bodies["base"]
    shared = {*head, *of_all, "chunks", "method"}
    return (
        {name: head[name] for name in head if name != "schema"}
        | {name: base[name] for name in of_all}
        | {
            "labels": domain["labels"],
            "methods": {
                method: {name: of for name, of in body.items() if name not in shared}
                for method, body in bodies.items()
            },
        }
    )


def test_a_snapshot_equals_the_messages_on_the_topic(served, log):
    log.publish(taken(), taken(sequence=2, first=33))
    log.add("other/head", b"{}")
    log.add("s/all/base", b"no JSON")
    log.add("s/all/base", b"[]", [("parts", b"many")])
    log.add("s/head", b"{}", [("parts", b"1")])
    log.records.append(Record(None, b"no key", [], len(log.records)))
    log.publish(taken(T))  # none of these blocks it
    assert len(said(served, "/streams")) == 2
    got = said(served, "/streams/s/snapshot")
    assert got == whole(taken(sequence=2, first=33))
    assert tuple(got["labels"]) == LABELS
    fewer = said(served, "/streams/s/snapshot?method=norm-sub&method=base")
    assert list(fewer["methods"]) == ["norm-sub", "base"]
    assert fewer["methods"]["base"] == got["methods"]["base"]


def test_a_dropped_answer_is_visibly_truncated(served, log, monkeypatch):
    """Random digits do not compress, so the answer is longer than the buffers between worker and reader."""
    digits = np.random.default_rng(1).integers(0, 10, 8 << 20).astype(np.uint8).tobytes()
    monkeypatch.setattr("worker.http.page.documents.whole", lambda snapshot, methods: [digits])
    monkeypatch.setattr(answers, "MOST_ANSWERS", 1)
    log.publish(taken(), taken(T))
    connection = http.client.HTTPConnection("127.0.0.1", served, timeout=WAIT)
    with contextlib.closing(connection):
        connection.request("GET", "/streams/s/snapshot", headers={"Accept-Encoding": "gzip"})
        reply = connection.getresponse()
        assert ask(served, "/streams/t.2/excerpt").status == 200  # takes its room
        with pytest.raises(http.client.IncompleteRead):
            reply.read()


def test_chunked_vectors_are_joined(served, log):
    log.publish(taken(T))
    got = said(served, "/streams/t.2/snapshot?method=base")
    base = taken(T).bodies["base"]
    assert got["methods"]["base"]["frequencies"] == base.frequencies.tolist()
    assert got["methods"]["base"]["high"] == base.high.tolist()
    assert got["labels"] is None


def test_a_request_returns_the_newest_or_the_named_window(served, log):
    log.publish(taken(), taken(window=hour(1)), taken(window=hour(5), first=50))
    assert said(served, "/streams/s/snapshot?window=1h")["window"]["start"] == "1970-01-01T05:00:00.000Z"
    for start in (HOUR, "1970-01-01T01:00Z", "1970-01-01T03:00%2B02:00", "1970-01-01T01:00"):
        got = said(served, f"/streams/s/snapshot?window=1h&start={start}")
        assert got["window"]["start"] == "1970-01-01T01:00:00.000Z"
        assert tuple(got["labels"]) == LABELS


def test_entity_tags_depend_on_snapshot_and_query(served, log):
    log.publish(taken())
    paths = [
        f"/streams/s/{form}{query}"
        for form in ("snapshot", "excerpt", "values.csv")
        for query in ("", "?method=base", "?window=all")
    ]
    tags = [ask(served, path).headers["ETag"] for path in paths]
    assert len({*tags}) == len(tags)
    for path, tag in zip(paths, tags, strict=True):
        assert ask(served, path, If_None_Match=f'"x", W/{tag}').status == 304
        assert ask(served, path, "HEAD").headers["ETag"] == tag
    log.publish(taken(sequence=2))
    until(lambda: ask(served, paths[0], If_None_Match=tags[0]).status == 200, "the newer one is read")


REFUSED = f"""
/streams/none/snapshot | 404 | stream 'none' given; the streams are s, t.2
/streams/%3Cb%3E/excerpt | 404 | stream '<b>' given
/streams/s/snapshot?window=2h | 404 | no window '2h' of s is on the topic
/streams/s/snapshot?window=1h&start=7 | 404 | no window '1h' of s that starts at 7 is on the topic
/streams/t.2/excerpt | 404 | no snapshot of t.2 is on the topic
/streams/s/snapshot?start=7 | 400 | only a window has a start
/streams/s/snapshot?window=1h&start=noon | 400 | start 'noon' given; write a time like 2026-11-22T06:00Z
/streams/s/snapshot?method=best | 400 | method 'best' given; published: base, base-pos,
/streams/s/excerpt?top=0 | 400 | top '0' given; 1 to 500 are allowed
/streams/s/excerpt?top=501 | 400 | 1 to 500 are allowed
/streams/s/excerpt?sort=up | 400 | sort 'up' given; base and value are allowed
/streams/s/excerpt?of=users | 400 | of 'users' given; reports and population are allowed
/streams/s/snapshot?of=population | 400 | parameter 'of' given
/streams/s/snapshot?metod=base | 400 | parameter 'metod' given; allowed are window, start, method
/streams/s/snapshot?{"method=base&" * 65} | 400 | too many parameters given; 64 are allowed
/events?stream=none | 404 | stream 'none' given; the streams are s, t.2
/events?streams=s | 400 | parameter 'streams' given; allowed are stream, window
"""


@pytest.mark.parametrize(("path", "status", "why"), rows(REFUSED))
def test_invalid_requests_are_answered_with_the_reason(served, log, path, status, why):
    log.publish(taken(), taken(window=hour(1)))
    reply = ask(served, path)
    assert reply.status == int(status)
    assert reply.headers["Content-Type"] == "application/json"
    answered = json.loads(reply.body)
    assert why in answered["error"]
    if status == "404" and path.startswith("/streams/s"):
        assert answered["windows"] == ["1h", "all"]


def test_refusing_brokers_are_named_and_retried(log, metrics, monkeypatch):
    monkeypatch.setattr("worker.kafka.snapshots.follower._RETRY_SECONDS", 0.05)
    log.publish(taken())
    log.refuses = ConnectionRefusedError("no")
    with serving(log, metrics, kind=Follower) as (port, _):
        reply = until(lambda: (found := ask(port, "/streams/s/snapshot")).status == 503 and found, "503")
        assert reply.headers["Retry-After"] == "1"
        assert json.loads(reply.body)["error"].startswith("the snapshot topic: ")
        assert said(port, "/streams")[0]["newest"] is None
        log.refuses = None
        until(lambda: ask(port, "/streams/s/snapshot").status == 200, "they answer again")


def test_a_snapshot_of_a_newer_version_is_named(served, log):
    log.publish(taken())
    log.records = [
        record._replace(value=record.value.replace(b'"schema":1', b'"schema":99')) for record in log.records
    ]
    reply = ask(served, "/streams/s/snapshot")
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert "99" in json.loads(reply.body)["error"]
    log.publish(taken(T))
    until(lambda: ask(served, "/streams/t.2/snapshot").status == 200, "others are read")


# --- excerpts


def test_an_excerpt_contains_values_of_the_snapshot(served, log):
    log.publish(taken())
    one = taken()
    got = said(served, "/streams/s/excerpt?top=2&method=base&method=norm-sub")
    base, norm_sub = one.bodies["base"], one.bodies["norm-sub"]
    assert [row["value"] for row in got["values"]] == [0, 1]
    assert [row["label"] for row in got["values"]] == list(LABELS[:2])
    for row in got["values"]:
        value = row["value"]
        assert row["frequencies"] == {
            "base": base.frequencies[value],
            "norm-sub": norm_sub.frequencies[value],
        }
        assert (row["low"], row["high"]) == (base.low[value], base.high[value])
    drawn = [*base.low[:2], *base.high[:2], *base.frequencies[:2], *norm_sub.frequencies[:2]]
    drawn += [row[end] for row in got["values"] for end in ("anytime_low", "anytime_high") if end in row]
    assert got["range"] == [min(drawn), max(drawn)]
    assert (got["matching"], got["offset"], got["domain_size"], got["reports"]) == (4, 0, 4, 70)
    assert (got["published"], got["methods"]) == (1000, list(ldp.consistency.METHODS))
    assert got["sums"]["norm-sub"] == pytest.approx(1)
    assert got["document"] == {"protocol": "grr", "epsilon": "1/1", "domain_size": 4}
    (two,), (most,) = got["queries"], got["top"]
    answer = base.sets[0]
    assert (two["name"], two["values"], two["size"]) == ("two", [0, 2], 2)
    assert two["answers"] == {"base": answer.frequency, "norm-sub": norm_sub.sets[0].frequency}
    assert (two["low"], two["high"], two["recommended"]) == (answer.low, answer.high, None)
    assert (most["values"], most["labels"]) == ([0, 1], list(LABELS[:2]))
    assert most["answers"]["norm-sub"] == norm_sub.tops[0].frequencies.tolist()
    assert most["high"] == base.tops[0].high.tolist()


def test_intervals_of_the_population_follow_from_base(served, log):
    log.publish(taken(first=15))
    got = said(served, "/streams/s/excerpt?of=population&sort=value")
    estimate = S.oracle.estimate([15, 10, 10, 10], 45)
    assert [(row["low"], row["high"]) for row in got["values"]] == list(
        zip(*(ends.tolist() for ends in estimate.interval(0.95, "population")), strict=True)
    )
    base = taken(first=15).bodies["base"]
    assert got["values"][0]["low"] < base.low[0]  # the frequency is 0.53; ends beyond 0 and 1 stay
    (two,), (most,) = got["queries"], got["top"]
    assert (two["low"], two["high"]) == ldp.query.interval(estimate, [0, 2], 0.95, "population")
    ends = ldp.query.top_interval(estimate, 2, 0.95, "population")
    assert (most["low"], most["high"]) == (ends[0].tolist(), ends[1].tolist())
    for answer in (*got["values"], two, most):  # these cover the reports, or depend on such an interval
        assert not {"anytime_low", "anytime_high", "poisoning_tolerance"} & answer.keys()


# --- CSV


@pytest.mark.parametrize("of", ["reports", "population"])
def test_the_values_are_downloaded_as_csv(served, log, of):
    log.publish(taken(), taken(window=hour(1)))
    reply = ask(served, f"/streams/s/values.csv?method=norm-sub&method=base&of={of}")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert reply.headers["Content-Disposition"] == 'attachment; filename="s-1.csv"'
    assert reply.body.count(b"\r\n") == 5
    shown = said(served, f"/streams/s/excerpt?sort=value&of={of}")["values"]
    names = ["low", "high"]
    names += ["anytime_low", "anytime_high", "poisoning_tolerance"] if of == "reports" else []
    head, *rows = csv.reader(io.StringIO(reply.body.decode(), newline=""))
    assert head == ["value", "label", "norm-sub", "base", *names]
    for row, one in zip(rows, shown, strict=True):
        assert row[:2] == [str(one["value"]), one["label"]]
        numbers = [one["frequencies"]["norm-sub"], one["frequencies"]["base"], *(one[name] for name in names)]
        assert [float(cell) for cell in row[2:]] == numbers
    named = ask(served, "/streams/s/values.csv?window=1h").headers["Content-Disposition"]
    assert named == 'attachment; filename="s-1h-3600000-1.csv"'


def test_a_csv_of_many_values_without_labels_has_each_once(served, log, monkeypatch):
    monkeypatch.setattr(documents, "_AT_ONCE", 4096)
    log.publish(taken(T))
    reply = ask(served, "/streams/t.2/values.csv?method=base")
    head, *rows = csv.reader(io.StringIO(reply.body.decode(), newline=""))
    assert head[:3] == ["value", "base", "low"]
    assert [int(row[0]) for row in rows] == [*range(9000)]
    assert [float(row[1]) for row in rows] == taken(T).bodies["base"].frequencies.tolist()


def test_the_name_of_a_file_has_no_characters_of_headers():
    window = snapshot.Period('1h"\r\nX: y', 0, 1)
    header = page._saved_as("a.b-c", IndexEntry(window, 0, 0, {"sequence": 7}, frozenset()))
    assert header == {"Content-Disposition": 'attachment; filename="a.b_c-1h___X__y-0-7.csv"'}


def test_answers_have_the_time_of_the_server(served, log):
    log.publish(taken())
    before = time.time()
    sent = parsedate_to_datetime(ask(served, "/streams/s/excerpt").headers["Date"]).timestamp()
    assert before - 2 <= sent <= time.time()  # in whole seconds, renewed once per second


def test_an_excerpt_continues_at_an_offset(served, log):
    log.publish(taken(T))
    pages = [
        said(served, f"/streams/t.2/excerpt?top=400&offset={offset}&sort=value") for offset in (0, 400, 8990)
    ]
    assert [[row["value"] for row in page["values"]] for page in pages] == [
        [*range(400)],
        [*range(400, 800)],
        [*range(8990, 9000)],
    ]
    beyond = said(served, "/streams/t.2/excerpt?offset=9000")
    assert (beyond["values"], beyond["matching"], beyond["range"]) == ([], 9000, [0, 0])
    found = said(served, "/streams/t.2/excerpt?find=899&sort=value")
    assert [row["value"] for row in found["values"]] == [v for v in range(9000) if "899" in str(v)]
    assert found["matching"] == 19


def test_a_value_is_found_by_its_label_in_any_case(served, log):
    log.publish(taken())
    got = said(served, f"/streams/s/excerpt?find={quote('SCRIPT')}")
    assert [(row["value"], row["label"]) for row in got["values"]] == [(2, LABELS[2])]
    assert said(served, "/streams/s/excerpt?find=purple")["matching"] == 0


# --- events


class Listener:
    """Receives events: a connection, and a thread that reads it."""

    def __init__(self, port, path="/events"):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
        self._socket.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        self._stream = self._socket.makefile("rb")
        self.status = int(self._stream.readline().split()[1])
        self.headers = http.client.parse_headers(self._stream)
        self.heard = []
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self):
        event = {}
        with contextlib.suppress(OSError, ValueError):
            for line in self._stream:
                name, _, text = line.decode().rstrip("\n").partition(": ")
                if name == ":":  # a comment
                    continue
                if name:
                    event[name] = text
                elif event:
                    self.heard.append((event.get("event"), json.loads(event.get("data", "null"))))
                    event = {}

    def of(self, name):
        return [data for event, data in list(self.heard) if event == name]

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def listen(served):
    with contextlib.ExitStack() as closing:
        yield lambda path="/events": closing.enter_context(contextlib.closing(Listener(served, path)))


def test_events_list_the_streams_at_once_and_then_changes(served, listen, log, metrics):
    log.publish(taken(), taken(window=hour(1)))
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    everything, hours = listen(), listen("/events?stream=s&window=1h")
    assert (everything.status, everything.headers["Content-Type"]) == (200, "text/event-stream")
    for listener in (everything, hours):
        until(
            lambda listener=listener: any(s[0]["newest"] for s in listener.of("streams")), "the streams, read"
        )
    assert everything.of("snapshot") == []  # older snapshots are not news
    newer = taken(sequence=2), taken(window=hour(1, final=True), sequence=2)
    log.publish(*newer)
    until(lambda: len(everything.of("snapshot")) == 2, "both")
    until(lambda: len(hours.of("snapshot")) == 1, "the window's")
    assert hours.of("snapshot") == [
        {
            "stream": "s",
            "sequence": 2,
            "snapshot": newer[1].identity,
            "published": 2000,
            "window": {
                "name": "1h",
                "start": "1970-01-01T01:00:00.000Z",
                "end": "1970-01-01T02:00:00.000Z",
                "final": True,
            },
            "reports": 70,
        }
    ]
    until(lambda: everything.of("streams")[-1][0]["newest"]["sequence"] == 2, "the streams, anew")
    metrics.lag.labels("s", "1").set(0)
    until(lambda: everything.of("streams")[-1][0]["lag"] == 0, "what is counted, anew")


@pytest.mark.parametrize("read", [False, True])
def test_a_reader_that_connects_first_misses_no_snapshot(log, metrics, read):
    """The page requests a snapshot once it is connected: it must receive every later one."""
    log.publish(taken())
    with paged(log, metrics) as (page, follower):
        if read:
            assert follower.find("s").fields["sequence"] == 1
        events = page.events("/events?stream=s&window=all")
        assert next(events).startswith(b"event: streams")
        assert follower.find("s").fields["sequence"] == 1
        log.publish(taken(sequence=2))
        until(lambda: follower.find("s").fields["sequence"] == 2, "the newer one is read")
        assert b'"sequence":2' in until(lambda: next(events).partition(b"event: snapshot")[2], "it is said")


def test_events_name_deleted_windows(served, listen, log):
    log.publish(taken(), taken(window=hour(1)), taken(window=hour(2)))
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    hours = listen("/events?stream=s&window=1h")
    log.publish(taken(sequence=2), gone=[hour(1)])
    (gone,) = until(lambda: hours.of("gone"), "it is said")
    assert (gone["stream"], gone["window"]["start"]) == ("s", "1970-01-01T01:00:00.000Z")
    assert hours.of("snapshot") == []


def test_idle_event_streams_send_keep_alives(served, listen, monkeypatch):
    monkeypatch.setattr("worker.http.page.KEEP_ALIVE_SECONDS", 0.05)
    hears = listen()
    until(lambda: hears.of("alive"), "it is said")


def test_events_list_the_newest_of_many_windows(served, listen, log, monkeypatch):
    monkeypatch.setattr("worker.http.page.MOST_WINDOWS", 3)
    log.publish(taken(), *(taken(window=hour(start)) for start in range(9)))
    until(lambda: len(said(served, "/streams")[0]["available"]["1h"]) == 9, "all are read")
    (first,) = until(listen().heard.copy, "the streams")[:1]
    assert [window["start"] // HOUR for window in first[1][0]["available"]["1h"]] == [6, 7, 8]


def test_a_slow_reader_of_a_large_event_is_not_dropped(log, metrics, monkeypatch):
    """Two megabytes for a line of 500 kB/s: all of it takes longer than a piece may."""
    monkeypatch.setattr(connections, "STALLED_SECONDS", 2.0)
    monkeypatch.setattr(Streams, "document", lambda self, part: [{"text": "x" * 2_000_000, "available": {}}])
    with (
        serving(log, metrics) as (port, _),
        socket.socket() as connection,
    ):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        connection.settimeout(WAIT)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        taken = 0
        while taken < 2_000_000:
            came = len(connection.recv(1 << 14))
            assert came, f"dropped after {taken}"
            taken += came
            time.sleep(came / 500_000)


# --- what cannot be read


def without(log, key, name):
    """Takes a field from the newest document of a key."""
    at = max(record.offset for record in log.records if record.key.decode() == key)
    document = json.loads(log.records[at].value)
    del document[name]
    log.records[at] = log.records[at]._replace(value=json.dumps(document).encode())


@pytest.mark.parametrize(
    "damage",
    [
        lambda log: without(log, "s/1h/3600000/norm", "frequencies"),
        lambda log: log.records.__setitem__(
            slice(None),
            [r._replace(value=r.value and r.value.replace(b'"norm"', b'"norm')) for r in log.records],
        ),
    ],
    ids=["a field is missing", "no JSON"],
)
def test_an_unreadable_snapshot_hides_no_other(served, log, damage):
    log.publish(taken(window=hour(1)))
    damage(log)
    log.publish(taken(), taken(T))
    for _ in range(2):
        reply = ask(served, "/streams/s/snapshot?window=1h")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        assert "cannot be read" in json.loads(reply.body)["error"]
        assert said(served, "/streams/s/snapshot")["sequence"] == 1
        assert said(served, "/streams/t.2/excerpt")["sequence"] == 1
    assert log.connected == 1


def test_a_long_snapshot_is_awaited_while_it_progresses(log, metrics, monkeypatch):
    monkeypatch.setattr("worker.kafka.snapshots.follower._READ_SECONDS", 1.0)
    log.publish(taken())
    poll = Consumer.poll

    def slowly(consumer, timeout_ms, max_records=1):
        time.sleep(0.1)
        return poll(consumer, timeout_ms, 1)

    monkeypatch.setattr(Consumer, "poll", slowly)
    with serving(log, metrics) as (port, _):
        assert said(port, "/streams/s/snapshot")["sequence"] == 1  # 13 messages, in 1.3 s


def test_a_replaced_snapshot_is_not_mistaken_for_the_old_one(log, metrics):
    log.publish(taken())
    with paged(log, metrics) as (_, follower):
        whole = follower.find("s")
        of_before = replace(whole, fields=whole.fields | {"snapshot": "0" * 32})
        with pytest.raises(NotRead, match="the message 's/head' is missing"):
            follower.read("s", of_before)
        assert follower.read("s", whole).sequence == 1


def test_many_readers_share_events(served, listen, log, monkeypatch):
    log.publish(taken())
    listeners = [listen() for _ in range(health.MOST_LISTENERS)]
    assert {listener.status for listener in listeners} == {200}
    refused = ask(served, "/events")
    assert (refused.status, int(refused.headers["Retry-After"]) > 0) == (503, True)
    with monkeypatch.context() as hasty:
        hasty.setattr(connections, "REQUEST_SECONDS", 0.5)
        with socket.create_connection(("127.0.0.1", served), timeout=WAIT) as silent:
            assert silent.recv(1) == b""  # it came after them, and its time is over, so theirs would be
    with contextlib.ExitStack() as held:
        for _ in range(connections.MOST_CONNECTIONS + 50):
            held.enter_context(socket.create_connection(("127.0.0.1", served), timeout=WAIT))
        assert ask(served, "/healthz").status == 200
    log.publish(taken(sequence=2))
    for listener in listeners:
        until(
            lambda listener=listener: (
                listener.of("snapshot")[-1:] and listener.of("snapshot")[-1]["sequence"] == 2
            ),
            "they still hear",
        )
    listeners[0].close()
    assert ask(served, "/events", "HEAD").status == 200  # needs no place
    until(lambda: listen().status == 200, "its place is free")


def test_a_reader_that_ignores_events_is_dropped(log, metrics, monkeypatch):
    monkeypatch.setattr(connections, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(health, "MOST_LISTENERS", 1)
    monkeypatch.setattr("worker.http.page.TURN_SECONDS", 0.001)
    monkeypatch.setattr("worker.http.page.STREAMS_SECONDS", 0.0)
    monkeypatch.setattr(
        Streams,
        "document",
        lambda self, part: [{"text": "x" * 100_000, "at": time.monotonic(), "available": {}}],
    )
    with (
        serving(log, metrics) as (port, _),
        socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection,
    ):
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"  # but not more

        def heard():
            with contextlib.closing(Listener(port)) as another:
                return another.status == 200

        until(heard, "its place is free")
        assert ask(port, "/healthz").status == 200


# --- allowed origins, and the headers of each answer

HARDENED = (
    "Content-Security-Policy",
    "X-Content-Type-Options",
    "Referrer-Policy",
    "Cross-Origin-Resource-Policy",
)


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /healthz", 200),
        ("GET /", 200),
        ("GET /streams", 200),
        ("GET /nothing", 404),
        ("GET /streams/s/snapshot?x=1", 400),
        ("GET /events?stream=none", 404),
        ("POST /", 405),
        ("GET http://[/streams", 404),
    ],
)
def test_every_answer_has_the_headers_of_a_page(served, request_line, status):
    with socket.create_connection(("127.0.0.1", served), timeout=WAIT) as connection:
        connection.sendall(f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            assert int(answer.readline().split()[1]) == status
            headers = http.client.parse_headers(answer)
    assert [name for name in HARDENED if headers[name] is None] == []
    assert headers["Server"] is None


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Host": "localhost:9464"}, True),
        ({"Host": "10.1.2.3:9464"}, True),  # the address of a pod; a name that points elsewhere is refused
        ({"Host": "[::1]:9464"}, True),
        ({"Host": "ldp.example.org"}, True),
        ({"Host": "LDP.example.org.:80"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "localhost.evil.example"}, False),
        ({"Host": "[::1"}, False),
        ({"Host": ""}, False),
        ({"Host": "localhost", "Origin": "http://localhost"}, True),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, False),
        ({"Host": "localhost", "Origin": "http://evil.example"}, False),
        ({"Host": "localhost", "Origin": "http://10.1.2.3"}, False),
        ({"Host": "localhost", "Origin": "null"}, False),
        ({"Host": "localhost", "Origin": "https://ldp.example.org"}, True),  # a proxy's own name
        ({"Host": "localhost", "Origin": "http://["}, False),
    ],
)
def test_host_and_origin_must_match(log, metrics, headers, allowed):
    with paged(log, metrics) as (page, _):
        ok = lambda: (True, {})  # noqa: E731
        names = frozenset({"ldp.example.org"})
        server = health.HttpServer("127.0.0.1", 0, metrics.registry, ok, ok, page, names)
        try:
            for path in ("/", "/streams", "/events", "/streams/s/excerpt"):
                status = ask(server.server_port, path, "HEAD", **headers).status
                assert (status not in (403, 421)) == allowed, path
        finally:
            server.shutdown()


def test_probes_and_metrics_accept_any_host_name(served):
    for path, status in (("/healthz", 200), ("/readyz", 503), ("/metrics", 200)):
        assert ask(served, path, Host="worker-1.ldp.svc:9464").status == status
        assert ask(served, path, Host="worker-1", Origin="http://evil.example").status == 403
    assert b"http.names" in ask(served, "/", Host="worker-1").body


def test_events_start_at_once_and_disable_proxy_buffering(served, monkeypatch):
    """nginx passes on what a head forbids it to gather; the first byte comes before anything is read."""
    monkeypatch.setattr(Streams, "document", lambda self, part="": time.sleep(WAIT))
    with socket.create_connection(("127.0.0.1", served), timeout=WAIT / 2) as connection:
        connection.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with connection.makefile("rb") as answer:
            answer.readline()
            assert http.client.parse_headers(answer)["X-Accel-Buffering"] == "no"
            assert answer.readline() == b"3\r\n"
            assert answer.readline() == b":\n"


# --- what the head does not vouch for


def forged(log, key, **changes):
    """Writes changed messages as the newest of a prefix, as a producer with write access could."""
    newest = {record.key.decode(): record for record in log.records if record.key.startswith(key.encode())}
    for name, record in newest.items():
        headers = dict(record.headers) | {n: v.encode() for n, v in changes.items() if n != "reports"}
        document = json.loads(record.value) | {
            n: int(v) for n, v in changes.items() if n in ("sequence", "reports")
        }
        document |= {n: v for n, v in changes.items() if n == "snapshot"}
        log.add(name, json.dumps(document).encode(), list(headers.items()))


@pytest.mark.parametrize("mark", ["another's", "its own"])
def test_foreign_messages_within_a_snapshot_are_bounded_and_reported(log, monkeypatch, mark):
    """Another writer's records may lie between those of a transaction."""
    monkeypatch.setattr(follower_module, "most_kept", lambda served: 200_000)
    one, seen, passed = taken(), [], []
    *most, last = snapshot.encode(one)
    for part in most:
        log.add(part.key, part.body, part.headers(1))
    headers = dict(last.headers(1)) | ({} if mark == "its own" else {"snapshot": b"x"})
    for number in range(100):
        log.add(f"s/all/base/frequencies/{number}", bytes(20_000), list(headers.items()))
    log.add(last.key, last.body, last.headers(1))
    follower = Patient(CONFIG, log.connect, on_passed=passed.append)
    assemble = reader_module._assembled

    def assembled(stream, whole, received):
        seen.append(sum(len(value) for _, value in received.values()))
        return assemble(stream, whole, received)

    monkeypatch.setattr(reader_module, "_assembled", assembled)
    monkeypatch.setattr(SnapshotIndex, "take", lambda *given: False)
    whole = IndexEntry(
        snapshot.ALL_TIME, 0, len(log.records) - 1, json.loads(most[0].body), frozenset(one.bodies)
    )
    assert follower.read("s", whole) == one
    assert seen[0] <= 200_000
    assert bool(passed) == (mark == "its own")
    assert all("more than 200,000 bytes of messages; " in each.why for each in passed)
    follower._idle_seconds = 0.0


def test_a_message_outside_any_snapshot_is_reported_once_read(log):
    log.publish(taken())
    log.add("s/head", b"{garbage", [("sequence", b"2")])
    passed = []
    follower = Patient(CONFIG, log.connect, on_passed=passed.append)
    assert follower.find("s").fields["sequence"] == 1
    until(lambda: passed, "it is named")
    assert (passed[0].topic, passed[0].offset) == ("ldp-snapshots", len(log.records) - 1)
    assert passed[0].why.startswith("not a message of a snapshot: ")
    follower._idle_seconds = 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"sequence": "9", "reports": "1000000"},
        {"sequence": "1", "reports": "1000000", "snapshot": "f" * 32},
    ],
    ids=["a higher number", "the head's number, another identity"],
)
def test_a_window_that_the_head_does_not_name_takes_no_place(served, log, changes):
    log.publish(taken(), taken(window=hour(1)))
    forged(log, "s/1h/3600000/", **changes)
    log.publish(taken(T))  # so that it is read
    until(lambda: said(served, "/streams")[1]["newest"], "the topic is read")
    (shown,) = said(served, "/streams")[0]["available"]["1h"]
    assert shown["reports"] == 70
    assert said(served, "/streams/s/snapshot?window=1h")["reports"] == 70


def test_a_window_that_the_head_does_not_name_is_marked_as_not_shown(served, log):
    log.publish(taken(sequence=2), taken(window=hour(1), sequence=9), taken(T))
    until(lambda: said(served, "/streams")[1]["newest"], "the topic is read")
    assert said(served, "/streams")[0]["available"]["1h"] == []
    for query in ("window=1h", "window=1h&start=3600000"):
        reply = ask(served, f"/streams/s/excerpt?{query}")
        assert (reply.status, json.loads(reply.body)["unnamed"]) == (404, True)
    reply = ask(served, "/streams/s/excerpt?window=1h&start=7200000")
    assert (reply.status, json.loads(reply.body)["unnamed"]) == (404, False)
    log.publish(*(taken(sequence=n) for n in range(3, 9)))
    log.publish(taken(sequence=9))  # its own head, which comes later only in this test
    until(lambda: said(served, "/streams")[0]["available"]["1h"], "the head names it")


# --- only readers cost anything


def test_the_topic_is_read_only_while_clients_send_requests(log, metrics):
    log.publish(taken())
    with serving(log, metrics, idle=3.0) as (port, follower):
        ask(port, "/metrics")
        ask(port, "/healthz")
        assert not follower.running
        assert said(port, "/streams/s/snapshot")["sequence"] == 1
        assert log.connected == 1
        until(lambda: log.closed == 1, "nobody asks any more")
        log.publish(taken(sequence=2))
        assert said(port, "/streams/s/snapshot")["sequence"] == 2
        assert log.connected == 2


def test_cached_snapshots_are_bounded(log, metrics, monkeypatch):
    monkeypatch.setattr("worker.kafka.snapshots.follower._KEPT_NUMBERS", 500)
    log.publish(taken(), *(taken(window=hour(start)) for start in range(20)))
    with paged(log, metrics) as (_, follower):
        for _ in range(2):
            for start in range(20):
                at = start * HOUR
                one = follower.read("s", follower.find("s", "1h", at))
                assert one == replace(taken(window=hour(start)), cut=one.cut)
                assert 1 <= len(follower._kept) < 5
        monkeypatch.setattr("worker.kafka.snapshots.follower._KEPT_NUMBERS", 0)
        assert follower.read("s", follower.find("s")).sequence == 1
        assert len(follower._kept) == 1  # the newest, always


def test_equal_requests_share_one_read(served, log):
    log.publish(taken())
    until(lambda: said(served, "/streams")[0]["newest"], "the topic is read")
    sought = log.sought
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: ask(served, "/streams/s/excerpt").status, range(32)))
    assert set(replies) == {200}
    assert log.sought == sought + 2  # there, and back
