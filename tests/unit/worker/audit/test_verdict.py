"""The verdict on a stored partition."""

import hashlib
import json
import random
import struct
from collections import Counter

import numpy as np
import pytest

import ldp
from ldp import frames
from tests.support.cells import cells_of
from tests.unit.worker.audit.streams import STREAMS, counted_by_worker, every_stream, frame, some_reports
from worker.audit import PartitionVerdict
from worker.audit.comparison import assess
from worker.audit.decoding import chances_of
from worker.audit.parsing import Limits, by_fingerprint
from worker.audit.protocols import weight_bounds
from worker.audit.records import Deleted, Records
from worker.audit.recount import recount as recount_of
from worker.counting import layout
from worker.counting.columns import Batch, Columns
from worker.counting.lineage import lineage_of
from worker.counting.partition_state import PartitionState
from worker.counting.ports import StateLost
from worker.counting.rules import RecordLimits, Rule

GROUP = "ldp-worker-s"
STREAM = STREAMS["olh-mul32"]
START = 100
COMMIT = "0123456789abcdef" * 2
KEY = layout.meta_key("s", 0)
NAME = f"all@{STREAM.fingerprint.hex()}"


def log(n=50, seed=1):
    """Records of offsets START, START+1, ...: good ones, and every fifth malformed."""
    rng = random.Random(seed)
    return [
        (10_000 + i, b"noise" if i % 5 == 4 else frame(STREAM, *some_reports(STREAM, rng, 3)))
        for i in range(n)
    ]


def stored(state, group=GROUP, stream=STREAM):
    """The store after a commit of a state."""
    before = layout.initial(
        lineage_of(group, "topic-id"), PartitionState.fresh(ldp.Fleet((stream,)), state.start)
    )
    metadata, blobs = layout.dump(state, before, COMMIT)
    return layout.fields(metadata, KEY), dict(blobs)


def verify(cut, records, begin=START, end=None, stream=STREAM, read=None, partition=0, name="s", **facts):
    def there(first, last, caps):
        assert begin <= first <= last
        return [Records.of(records[first - START : last - START])]

    bounds = (begin, START + len(records) if end is None else end)
    facts = {"cut": cut, "bounds": bounds, "read": read or there, **facts}
    return assess(by_fingerprint(stream.document()), partition, stream=name, group=GROUP, **facts)


def test_counts_of_a_recreated_topic_are_different():
    records = log()
    cut = stored(counted_by_worker(STREAM, records, START))
    assert verify(cut, records, topic_id="topic-id").verdict == "equal"
    row = verify(cut, records, topic_id="another")
    assert row.difference == (
        "lineage: the counts belong to topic id topic-id, but the topic has another: it was recreated"
    )


def test_the_comparison_ends_at_the_stored_offset():
    records = log()
    row = verify(stored(counted_by_worker(STREAM, records[:40], START)), records)
    assert row == PartitionVerdict(
        0, START, START + 40, lag=10, records=40, reports=96, rejected={"version": 8}
    )


def test_an_empty_count_is_equal():
    empty = ({}, {NAME: None})
    assert verify(empty, log()) == PartitionVerdict(0, None, 0, lag=50)
    fresh = PartitionState.fresh(ldp.Fleet((STREAM,)), START)
    claimed = layout.fields(layout.initial(lineage_of(GROUP, "t"), fresh), KEY)
    assert verify((claimed, {NAME: None}), log()) == PartitionVerdict(0, START, START, lag=50)


def changed(what, to):
    def change(state):
        setattr(state if hasattr(state, what) else state.windows, what, to)

    return change


def add_report(state):
    cells_of(state)["all"].reports += 1


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (changed("accepted", 41), "accepted: 41 in Redis, 40 recounted"),
        (changed("rejected", {"version": 9}), "rejected as version: 9 in Redis, 10 recounted"),
        (changed("rejected", {"version": 10, "json": 1}), "rejected as json: 1 in Redis, 0 recounted"),
        (changed("admitted_from", 1), "closed: 0 in Redis, 1 recounted"),
        (changed("evicted_to", 1), "evicted_to: 1 in Redis, beyond the window-close watermark 0"),
        (changed("first_start", {"1h": 0}), "first_start of window 1h: 0 in Redis, none recounted"),
        (changed("watermark", 10_049), "watermark: 10049 in Redis, 10048 recounted"),
        (changed("watermark", None), "watermark: None in Redis, 10048 recounted"),
        (add_report, "reports: 121 in Redis, 120 recounted"),
        (changed("offset", START + 49), "rejected as version: 10 in Redis, 9 recounted"),
        (
            changed("offset", START + 51),
            "offset: 151 in Redis, but the log ends at 150: truncated or recreated",
        ),
        (changed("start", START + 1), "start: 101 in Redis, but the log begins at 100, before it"),
    ],
)
def test_the_first_difference_is_named(change, difference):
    state = counted_by_worker(STREAM, log(), START)
    change(state)
    assert verify(stored(state), log()).difference == difference


def test_a_single_entry_of_the_state_is_enough():
    records = log()
    state = counted_by_worker(STREAM, records, START)
    was = int(cells_of(state)["all"].state[17])
    cells_of(state)["all"].state[[17, 60]] += 1
    row = verify(stored(state), records)
    assert row.difference == f"state[17]: {was + 1} in Redis, {was} recounted; 2 of 120 entries differ"


def checked(fields):
    """The fields with a matching checksum, if none of them is missing."""
    names = ("lineage", "epoch", "offset", "commit_id", "blobs", "totals")
    if not fields.keys() >= {*names}:
        return fields
    text = "\n".join([KEY, *(fields[name] for name in names)])
    return fields | {"checksum": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}


def test_metadata_and_counts_must_belong_together():
    records = log()
    fields, blobs = stored(counted_by_worker(STREAM, records, START))
    assert verify((fields, blobs), records).difference is None
    blob = blobs[NAME]

    def difference(fields=fields, blob=blob):
        return verify((checked(fields), {NAME: blob}), records).difference

    assert difference({}) == "metadata: missing, but counts exist"
    assert difference(blob=None) == "counts: the blob in the metadata is missing"
    assert difference(blob=blob[:-8]) == f"counts: the blob has {len(blob) - 8} bytes, expected {len(blob)}"
    for bad in (blob[:39], b"LDP4" + blob[4:]):
        assert difference(blob=bad).startswith("counts: the blob begins with ")
    few = blob[:4] + struct.pack("<I", 119) + blob[8:]
    assert difference(blob=few) == "counts: the blob has 119 entries; expected 120"
    odd = blob[:49] + b"\x03" + blob[50:]
    assert difference(blob=odd) == "counts: the blob has entries of [3] bytes"
    another = blob[:32] + struct.pack("<I", 2) + blob[36:40] + blob[40:50] + b"\x01D" + blob[41:]
    for segments in (another, blob[:40] + b"\x01D" + blob[41:]):
        assert "expected one segment without a name" in difference(blob=segments)
    assert "cannot be read" in difference(blob=blob[:49])
    for cell, why in (
        ("all@00c0ffee", "is missing"),
        ("5+5@00c0ffee", "other than"),
        ("5+5", "other than"),
    ):
        named = json.loads(fields["blobs"]) | {cell: "f" * 32}
        named = {name: by for name, by in named.items() if "missing" not in why or name != NAME}
        assert why in difference(fields | {"blobs": json.dumps(named)})
    other = fields | {"blobs": json.dumps({NAME: "f" * 32})}
    assert difference(other) == f"counts: the blob is from commit {COMMIT}, but the metadata names {'f' * 32}"
    assert difference(fields | {"offset": "149"}).endswith("is from offset 150, the metadata from 149")
    message = "metadata: no commit yet, but counts exist"
    assert difference(fields | {"commit_id": ""}) == message
    assert difference(fields | {"blobs": "{}"}).startswith("metadata: blobs [], but")
    unknown = verify((fields | {"shard": "3"}, blobs), records).difference
    assert unknown == "metadata: fields ['shard'] are unknown in layout 1"
    for key in fields.keys() - {"epoch", "commit_id", "checksum"}:
        assert difference(fields | {key: "?"}).startswith("metadata: "), key
        assert difference({k: v for k, v in fields.items() if k != key}).startswith("metadata: "), key


def test_each_byte_of_metadata_and_counts_is_checked():
    fields, blobs = stored(counted_by_worker(STREAM, log(), START))
    assert verify((fields, blobs), log()).difference is None
    for name, value in fields.items():
        for i in range(len(value)):
            said = verify(
                (fields | {name: value[:i] + chr(ord(value[i]) ^ 1) + value[i + 1 :]}, blobs), log()
            )
            assert said.difference.startswith(("metadata: ", "lineage: ")), (name, i)
    blob = blobs[NAME]
    for i in range(len(blob)):
        flipped = blob[:i] + bytes([blob[i] ^ 4]) + blob[i + 1 :]
        assert verify((fields, {NAME: flipped}), log()).difference.startswith("counts: the blob "), i
    nested = "[" * 100_000
    assert verify((fields | {"totals": nested}, blobs), log()).difference.startswith("metadata: ")


def test_a_blob_may_be_older_than_the_metadata():
    records = log()
    state = counted_by_worker(STREAM, records, START)
    before, blobs = layout.dump(state, layout.initial(lineage_of(GROUP, "t"), state), COMMIT)
    state.changed.clear()
    state.apply(Batch(0, state.offset, state.offset + 1, Columns.of([], [], [])))  # a transaction marker
    after, none = layout.dump(state, before, "f" * 32)
    assert none == {}
    assert verify((layout.fields(after, KEY), blobs), [*records], end=state.offset + 1).difference is None


def test_metadata_and_counts_of_another_partition_are_a_difference():
    records = log()
    fields, blobs = stored(counted_by_worker(STREAM, records, START))
    assert verify((fields, blobs), records).difference is None
    for name, partition in (("s", 1), ("s2", 0)):  # both keys, and only the metadata
        for there in (blobs, {NAME: blobs[NAME].replace(bytes.fromhex(COMMIT), bytes(16))}):
            row = verify((fields, there), records, partition=partition, name=name)
            assert row.difference.startswith("metadata: damaged, or of another partition")


def test_counts_of_another_stream_or_group_are_refused():
    records = log()
    state = counted_by_worker(STREAM, records, START)
    row = verify(stored(state, group="other"), records)
    assert row.difference == f"lineage: group is 'other' in Redis, {GROUP!r} in the configuration"
    other = STREAMS["olh-xxh32"]
    row = verify(stored(counted_by_worker(other, [], START), stream=other), records)
    theirs, ours = (each.fingerprint.hex() for each in (other, STREAM))
    assert row.difference == f"documents: {theirs} in Redis, {ours} in the configuration"


def test_recorded_documents_must_be_those_of_the_rules():
    records = log()
    fields, blobs = stored(counted_by_worker(STREAM, records, START))
    ours = STREAM.fingerprint.hex()
    assert json.loads(fields["totals"])["documents"] == {ours: STREAM.document()}

    def difference(change):
        totals = json.loads(fields["totals"])
        change(totals)
        return verify((checked(fields | {"totals": json.dumps(totals)}), blobs), records).difference

    another = by_fingerprint(ldp.Stream("s", ldp.GRR("1", 3)).document())
    assert difference(lambda totals: None) is None
    for name, change in {
        "fingerprint": lambda totals: totals["documents"][ours].update(epsilon="2/1"),
        "recorded with a document": lambda totals: totals["documents"].update({"00c0ffee": {}}),
        "are recorded": lambda totals: totals["documents"].update(another),
        "cannot be read": lambda totals: totals.pop("documents"),
        "rules: they name": lambda totals: totals["rules"][0].pop("documents"),
        "accepted: 40 in Redis, 0": lambda totals: totals["rules"][0]["documents"].update({ours: [0, True]}),
        "status -1": lambda totals: totals["rules"][0].update(segments={"DE": [-1, False]}),
        "unchanged": lambda totals: totals["rules"].append(
            totals["rules"][0] | {"offset": START + 9, "documents": {ours: [0, False]}}
        ),
    }.items():
        assert name in difference(change), name


def with_gap(records, lost, found, recorded=None):
    """State of a worker that counted up to ``lost`` and continued at ``found``."""
    state = counted_by_worker(STREAM, records[: lost - START], START, recorded=recorded)
    state.skip(found)
    rest = records[found - START :]
    end = START + len(records)
    offsets = range(found, end)
    state.apply(Batch(0, found, end, Columns.of(offsets, [t for t, _ in rest], [v for _, v in rest])))
    return state


def test_deleted_records_are_named_as_not_recountable():
    records = log()
    cut = stored(counted_by_worker(STREAM, records, START))
    row = verify(cut, records, begin=START + 20)
    said = "not recountable: offsets 100 to 119: counted, then deleted; 30 remaining records match"
    assert (row.difference, row.deleted, row.verdict) == (said, ((100, 120),), "not recountable")
    assert (row.records, row.reports, row.malformed) == (30, 72, 6)
    # all of it was deleted, and more was not counted yet
    row = verify(cut, records, begin=START + 60, end=START + 70)
    said = "not recountable: offsets 100 to 149: counted, then deleted; no record remains"
    assert (row.difference, row.deleted, row.records) == (said, ((100, 150),), 0)
    # records deleted before they were counted do not matter: the worker's next claim records them as a gap
    assert verify(cut, records, begin=START + 1).deleted == ((100, 101),)


@every_stream
def test_correct_counts_are_equal_after_any_deletion(stream):
    rng = random.Random(f"retention {stream.fingerprint.hex()}")

    def value():
        return b"noise" if rng.randrange(4) == 0 else frame(stream, *some_reports(stream, rng, 2))

    records = [(rng.randrange(10**6), value()) for _ in range(20)]
    cut = stored(counted_by_worker(stream, records, START), stream=stream)
    for begin in range(START + 1, START + 21):
        row = verify(cut, records, begin=begin, stream=stream)
        assert (row.verdict, row.deleted) == ("not recountable", ((START, begin),)), row.difference
        assert row.records == START + 20 - begin


def empty_state(state):
    cells_of(state)["all"].state[:] = 0


def fill_state(state):
    cells_of(state)["all"].state[:] = cells_of(state)["all"].reports + 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("accepted", 3), "accepted: 3 in Redis, 24 recounted from the remaining records"),
        (changed("accepted", 60), "records: 40 counted at 20 deleted offsets"),
        (changed("rejected", {"version": 5}), "rejected as version: 5 in Redis, 6 recounted from the "),
        (changed("rejected", {"version": 10, "json": 1}), "records: 21 counted at 20 deleted offsets"),
        (changed("late", {"1m": 1}), "late: 1 in Redis, 0 recounted"),
        (changed("undated", 1), "undated: 1 in Redis, 0 recounted"),
        (changed("closed", 1), "closed: 1 in Redis, 0 recounted"),
        (changed("watermark", 10_047), "watermark: 10047 in Redis, 10048 recounted from the "),
        (changed("watermark", None), "watermark: None in Redis, 10048 recounted from the remaining records"),
        (empty_state, "state[0]: 0 in Redis, "),
        (fill_state, "state[0]: "),
    ],
)
def test_a_loss_visible_in_the_remaining_log_is_a_difference(change, said):
    state = counted_by_worker(STREAM, log(), START)
    change(state)
    row = verify(stored(state), log(), begin=START + 20)
    assert row.difference.startswith(said)
    assert (row.verdict, row.deleted) == ("different", ())


@pytest.mark.parametrize("name", ["grr-3", "subset-u1", "subset-bits", "hadamard-10", "pgr-10", "oue-10"])
def test_deleted_reports_must_add_up_as_the_protocol_requires(name):
    stream, rng = STREAMS[name], random.Random(7)
    ones = stream.document().get("k", None if name.startswith("oue") else 1)
    records = [(0, frame(stream, *some_reports(stream, rng, 2))) for _ in range(50)]
    state = counted_by_worker(stream, records, START)
    cells_of(state)["all"].state[0] += 1
    row = verify(stored(state, stream=stream), records, begin=START + 20, stream=stream)
    if ones is None:  # a user's bits are as many as the coins say
        assert row.verdict == "not recountable"
    else:
        assert (
            row.difference == f"state: the sum of 40 deleted reports is {ones * 40 + 1}, expected {ones * 40}"
        )


def test_malformed_records_have_no_reports():
    records = [(5, b"noise")] * 20 + log()
    good = counted_by_worker(STREAM, records, START)
    assert verify(stored(good), records, begin=START + 20).verdict == "not recountable"
    for change, message in (
        (add_report, "reports: 1 in 0 deleted accepted"),
        (changed("watermark", 99_999), "watermark: 99999 in Redis, 10048 recounted from the "),
    ):
        state = counted_by_worker(STREAM, records, START)
        state.rejected["version"] = 30
        change(state)
        row = verify(stored(state), records, begin=START + 20)
        assert row.difference.startswith(message)


def test_records_deleted_during_the_audit_are_not_recountable():
    records = log()
    cut = stored(counted_by_worker(STREAM, records, START))

    def read(first, last, caps):
        assert (first, last) == (START + 5, START + 50)
        yield Records.of(records[5:20])
        yield Deleted((START + 20, START + 30))
        yield Records.of(records[30:50])

    row = verify(cut, records, begin=START + 5, read=read)
    assert (row.verdict, row.deleted) == ("not recountable", ((100, 105), (120, 130)))
    assert row.records == 35
    assert "offsets 100 to 104, offsets 120 to 129: counted, then deleted" in row.difference


def test_a_gap_is_named_and_the_rest_recounted():
    records = log()
    # lost before any count: the audit can read all remaining records
    row = verify(stored(with_gap(records, START, START + 20)), records, begin=START + 20)
    said = "gap: offsets 100 to 119: deleted before they were counted; all other counts match the log"
    assert (row.difference, row.gaps, row.verdict, row.records) == (said, ((100, 120),), "gap", 30)
    row = verify(stored(with_gap(records, START, START + 1)), records, begin=START + 1)
    assert row.difference.startswith("gap: offset 100: deleted before they were counted")
    # counted to 110, then the log began at 120: the earlier counted records are deleted too
    row = verify(stored(with_gap(records, START + 10, START + 20)), records, begin=START + 20)
    said = (
        "gap: offsets 110 to 119: deleted before they were counted;"
        " not recountable: offsets 100 to 109: counted, then deleted; 30 remaining records match"
    )
    assert (row.difference, row.verdict) == (said, "gap")
    assert (row.gaps, row.deleted) == (((110, 120),), ((100, 110),))
    # a difference in the rest comes first
    state = with_gap(records, START, START + 20)
    state.accepted += 1
    row = verify(stored(state), records, begin=START + 20)
    assert row.difference == f"accepted: {state.accepted} in Redis, {state.accepted - 1} recounted"
    assert (row.gaps, row.verdict) == ((), "different")


def test_a_gap_that_the_log_disproves_is_a_difference():
    records = log()
    row = verify(stored(with_gap(records, START, START + 20)), records, begin=START + 19)
    assert row.difference == "gaps: [100, 120) in Redis, but the log has offsets from 119 on"
    state = counted_by_worker(STREAM, records, START)
    state.gaps = [(140, 160)]
    row = verify(stored(state), records)
    assert row.difference == "gaps: [(140, 160)] are not ascending within [100, 150)"


# --- the rules that are recorded --------------------------------------------------------------------------------------

UNARY = STREAMS["oue-64"]
RULES = [
    Rule(START, 0, RecordLimits(None, hamming_weight=False)),
    Rule(START + 10, 1, RecordLimits(2, hamming_weight=True)),
    Rule(START + 10, 2, RecordLimits(3, hamming_weight=True)),
    Rule(START + 25, 3, RecordLimits(1, hamming_weight=False)),
    Rule(START + 80, 9, RecordLimits(1, hamming_weight=True)),  # not yet
]


def of_all_lengths(stream, n=50, seed=2):
    """Records of 1 to 4 reports; some unary ones have only 1 bits."""
    rng = random.Random(seed)
    records = []
    for t in range(n):
        reports = some_reports(stream, rng, rng.randrange(1, 5))
        if stream.oracle.name == "oue" and rng.randrange(2):
            reports[0] = np.frombuffer(b"\xff" * 8, stream.oracle.report_dtype)[0]
        encode = rng.choice([frames.encode, frames.encode_json])
        records.append((t, encode(stream, np.array(reports, stream.oracle.report_dtype))))
    return records


@pytest.mark.parametrize("stream", [STREAM, UNARY], ids=["olh", "oue"])
@pytest.mark.parametrize("cuts", [(), (10, 25), (3, 17, 30)])
def test_the_audit_follows_the_rule_recorded_for_each_offset(stream, cuts):
    records = of_all_lengths(stream)
    state = counted_by_worker(stream, records, START, cuts, RULES)
    by_hand = Counter()
    for i, (_, value) in enumerate(records):
        most, ones = [(None, False), (3, True), (1, False)][(i >= 10) + (i >= 25)]
        by_hand.update(
            recount_of(
                by_fingerprint(stream.document()), [Records.of([(0, value)])], Limits(most, ones)
            ).rejected
        )
    assert dict(by_hand) == state.rejected
    assert by_hand.keys() == ({"many", "ones"} if stream is UNARY else {"many"})
    for encoded in (state, *([] if stream is UNARY else [with_gap(records, START, START + 5, RULES)])):
        begin = START + 5 if encoded.gaps else START
        row = verify(stored(encoded, stream=stream), records, begin=begin, stream=stream)
        assert row.verdict == ("gap" if encoded.gaps else "equal"), row.difference
        assert row.rejected == encoded.rejected


def test_readers_of_the_log_use_the_recorded_batch_limits():
    records = of_all_lengths(STREAM)
    recorded = [
        Rule(START, 1, RecordLimits(None, False, 5_000)),
        Rule(START + 10, 2, RecordLimits(3, True, 100)),
    ]
    asked = []

    def read(first, last, caps):
        asked.append((first, last, caps))
        return [Records.of(records[first - START : last - START])]

    state = counted_by_worker(STREAM, records, START, recorded=recorded)
    assert verify(stored(state), records, read=read).verdict == "equal"
    caps = [(START, 5_000), (START + 10, 100)]
    assert asked == [(START, START + 10, caps), (START + 10, START + 50, caps)]


BARE = {"offset": START, "revision": 1, "most_reports": 1}


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [BARE | {"offset": START + 1, "hamming_weight": True}],
        [BARE],
        [BARE | {"hamming_weight": True, "grace": 5}],
        [rule.as_json() for rule in (RULES[3], RULES[1])],
        ["rule"],
        None,
    ],
)
def test_inapplicable_rules_are_named(rules):
    fields, blobs = stored(counted_by_worker(STREAM, log(), START))
    if rules and isinstance(rules[0], dict):
        rules = [rules[0] | {"documents": {STREAM.fingerprint.hex(): [0, False]}}, *rules[1:]]
    totals = json.loads(fields["totals"]) | {"rules": rules}
    fields = checked(fields | {"totals": json.dumps(totals)})
    assert verify((fields, blobs), log()).difference.startswith("metadata: ")
    with pytest.raises(StateLost, match="cannot be read"):
        layout.recorded(layout.parse(fields, KEY))


@pytest.mark.parametrize("oracle", [ldp.OUE, ldp.SUE])
def test_the_audit_rejects_the_same_unlikely_weights(oracle):
    for epsilon in ("1/100", "1/1", "8/1", "64/1"):
        for d in (*range(1, 20), 64, 845, 4000):
            expected = oracle(epsilon, domain_size=d).weight_bounds
            document = {"protocol": oracle.name, "epsilon": epsilon, "domain_size": d}
            assert weight_bounds(*chances_of(document), d) == expected, (epsilon, d)


def test_lost_counts_are_a_difference():
    documents = by_fingerprint(ldp.Stream("s", ldp.GRR("1", 3)).document())
    facts = {"stream": "s", "group": "g", "cut": ({}, {}), "bounds": (0, 7), "read": lambda begin, end: []}
    assert assess(documents, 0, **facts).difference is None
    assert assess(documents, 0, **facts, committed=(7, "claimed")).difference is None
    counted = assess(documents, 0, **facts, committed=(7, "counted")).difference
    assert counted.endswith("counted progress: the counts were lost, or another Redis has them")
    published = assess(documents, 0, **facts, head={"offsets": {"0": 5}}).difference
    assert published.endswith(
        "a snapshot was published of offsets up to 5: the counts were lost, or another Redis has them"
    )


def test_counts_of_another_redis_are_never_equal():
    """The group counts from two stores: this one lacks the counts of the other one."""
    good = stored(counted_by_worker(STREAM, log(), START))
    offset = int(good[0]["offset"])
    assert verify(good, log(), committed=(offset, "counted")).difference is None
    difference = verify(good, log(), committed=(offset + 1, "counted")).difference
    assert difference.startswith(f"offset: {offset} in Redis, {offset + 1} counted by Kafka's group")
    assert verify(good, log(), committed=(offset + 1, "claimed")).difference is None


def test_counts_behind_a_snapshot_need_the_records_in_between():
    records = log()
    cut = stored(counted_by_worker(STREAM, records[:40], START))
    offset, end = START + 40, START + len(records)

    def row(begin, published):
        return verify(cut, records, begin=begin, head={"offsets": {"0": published}})

    assert row(START, end).difference is None
    assert row(offset, end).verdict == "not recountable"
    assert row(offset + 1, offset).verdict == "not recountable"
    assert row(offset + 1, offset + 1).difference == (
        f"offset: {offset} in Redis, {offset + 1} in the newest snapshot, and the log begins at {offset + 1}:"
        " the counts in between are lost"
    )
