"""Parts of the shuffler's core: ids, classification, permutation, frames and the committed offset's metadata."""

import itertools
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

import ldp
from ldp import frames, wire
from tests.simulation.shuffling import Owner, World, frame_of
from worker.cli import cli
from worker.config import parse
from worker.counting.ports import Unavailable
from worker.counting.windows import milliseconds
from worker.kafka.client import topics
from worker.shuffling.partition import Batch, _size_of
from worker.shuffling.permuting import permute, split
from worker.shuffling.uploads import CLOCK_STEP_MS, Classifier, RecentIds

STREAM = ldp.Stream("s", ldp.GRR("1", domain_size=7))
HOUR = 3_600_000


def reports(*values):
    return np.array([(value,) for value in values], STREAM.oracle.report_dtype)


def record(offset, timestamp, key, value):
    return SimpleNamespace(offset=offset, timestamp=timestamp, key=key, value=value)


def test_memory_of_ids_is_bounded_by_time():
    ids = RecentIds(HOUR)
    most = 0
    for second in range(20 * 3600):
        assert ids.add([second.to_bytes(16, "big")], [1000 * second]) == [False]
        most = max(most, len(ids))
    assert most <= (HOUR + CLOCK_STEP_MS + HOUR // 2) / 1000  # two periods more


def test_the_batches_of_the_log_do_not_matter():
    good, old = (
        frames.encode(STREAM, reports(1, 2)),
        frames.encode(ldp.Stream("o", STREAM.oracle), reports(1)),
    )
    values = [good, None, b"", old, good[:-1], frames.encode_json(STREAM, reports(3)), good[:5], b"{}"]
    keys = [bytes([n]) * 16 for n in range(4)] + [None, b"short", b""]
    rng = np.random.default_rng(3)
    log = [
        record(i, int(at), keys[rng.integers(len(keys))], values[rng.integers(len(values))])
        for i, at in enumerate(np.sort(rng.integers(0, 40 * HOUR, 300)))
    ]

    def classified(*sizes):
        classifier, left, found = Classifier(STREAM, HOUR), iter(log), []
        for size in sizes:
            found += classifier.classify(list(itertools.islice(left, size)))
        assert not list(left)
        return [(u.offset, u.timestamp, u.reports.tolist(), u.since, u.duplicates, u.rejected) for u in found]

    whole = classified(300)
    assert len(whole) > 10
    assert sum(1 + duplicates + rejected for *_, duplicates, rejected in whole) == whole[-1][0] + 1
    assert whole == classified(*[1] * 300) == classified(7, 0, 93, 200)


def test_an_upload_may_have_any_number_of_reports():
    """The gateway limits the number; a limit here would lose uploads that it has acknowledged."""
    value = frames.encode(STREAM, reports(*[1] * 100_000))
    (upload,) = Classifier(STREAM, HOUR).classify([record(0, 0, bytes(16), value)])
    assert upload.reports.size == 100_000


def test_a_permutation_is_uniform():
    found = Counter(tuple(permute(np.arange(4)).tolist()) for _ in range(24_000))
    assert len(found) == 24
    assert stats.chisquare(list(found.values())).pvalue > 1e-7


def test_equal_keys_are_drawn_again():
    drawn = iter([[5, 5, 1], [9, 2, 9], [3, 2, 1]])

    def random(size):
        assert size == 24
        return np.array(next(drawn), np.uint64).tobytes()

    assert permute(np.arange(3), random).tolist() == [2, 1, 0]
    assert next(drawn, None) is None


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 25])
@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_frames_are_equal_and_reach_all_partitions(n, partitions):
    sent = reports(*[i % 7 for i in range(n)])
    found = split(STREAM, sent, most_reports=3, partitions=partitions)
    sizes = [len(frame) - wire.HEADER_BYTES for _, frame in found]
    assert len(found) == max(-(-n // 3), min(n, partitions))
    assert max(sizes) <= 3
    assert max(sizes) - min(sizes) <= 1
    first = found[0][0]
    assert [number for number, _ in found] == [(first + i) % partitions for i in range(len(found))]
    assert b"".join(frame[wire.HEADER_BYTES :] for _, frame in found) == sent.tobytes()


def test_the_first_partition_is_random():
    found = Counter(split(STREAM, reports(1), 3, 4)[0][0] for _ in range(4000))
    assert stats.chisquare([found[i] for i in range(4)]).pvalue > 1e-7


def test_a_frame_fits_a_record():
    stream = ldp.Stream("s", ldp.OUE("1", domain_size=1 << 20))
    found = split(stream, stream.oracle.perturb([0] * 20), most_reports=10_000, partitions=1)
    assert {len(frame) <= wire.LARGEST_FRAME for _, frame in found} == {True}
    assert len(found) == -(-20 // ((wire.LARGEST_FRAME - wire.HEADER_BYTES) // stream.oracle.report_bytes))


@pytest.mark.parametrize(
    "metadata", ["", "claimed", "{}", "[]", "5", '{"size": 0}', '{"size": "5"}', '{"size": 2.5}', "null"]
)
def test_other_metadata_has_no_number(metadata):
    assert _size_of((3, metadata)) is None


def test_metadata_records_the_number():
    assert _size_of((3, Batch(3, 1000).metadata)) == 1000
    assert _size_of(None) is None


def test_a_shuffler_needs_an_intake(tmp_path):
    (tmp_path / "worker.toml").write_text(
        "[[streams]]\nname = 's'\ntopic = 't'\nprotocol = 'grr'\nepsilon = '1'\ndomain_size = 3\n"
    )
    done = CliRunner().invoke(cli, ["shuffle", "--config", str(tmp_path / "worker.toml")])
    assert done.exit_code == 2
    assert "streams.intake: no stream has one" in done.output


def test_the_intake_topic_has_broker_time_and_a_retention():
    config = parse(
        "[[streams]]\nname = 's'\ntopic = 't'\nintake = 'i'\nprotocol = 'grr'\nepsilon = '1'\ndomain_size = 3\n"
    )
    (spec,) = (spec for spec in topics.specs(config, 4) if spec.name == "i")
    assert (spec.role, spec.partitions) == ("uploads of s", 1)
    assert spec.settings["message.timestamp.type"] == topics.APPEND_TIME
    assert int(spec.settings["retention.ms"]) >= 2 * milliseconds(config.shuffle.deduplicate_for)


def test_an_intake_that_was_created_again_is_not_claimed():
    """Its first uploads would look shuffled."""
    world = World(random.Random(0))
    world.append(bytes(16), frame_of([1]))
    world.committed = 2, '{"size": 1}'
    owner = Owner(world, 1, calm=True)
    with pytest.raises(Unavailable, match="offset 2 is above the end 1 of the intake"):
        owner.intake.claim()
    world.committed = 1, '{"size": 1}'
    Owner(world, 1, calm=True).intake.claim()


def test_uploads_that_retention_deletes_while_they_wait_are_forgotten():
    world = World(random.Random(0))
    for number in range(2):
        world.append(bytes([number]) * 16, frame_of([number]))
    owner = Owner(world, 3, calm=True)
    owner.intake.claim()
    for _ in range(5):
        owner.intake.step()
    assert owner.intake.held == 2
    world.begin = 1
    with pytest.raises(Unavailable, match="retention deleted the uploads at offsets 0 to 0"):
        owner.intake.tidy()
    owner = Owner(world, 3, calm=True)
    owner.intake.claim()
    assert owner.intake.expired == 1
    for _ in range(5):
        owner.intake.step()
    assert owner.intake.held == 1
    assert world.committed == (1, '{"size": 3}')
