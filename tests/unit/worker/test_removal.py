"""Messages that `ldp-worker remove` deletes."""

from types import SimpleNamespace

import pytest

from tests.unit.worker.test_snapshot_producer import Compacted
from worker.kafka.snapshots import removal


def test_the_parts_of_a_stream_are_removed_and_no_other_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [b"s/head", b"s/all/base", b"s@9f86d081/head", b"s:DE/all/base", b"s:US:4.3/1s/1000/base"]
    others = [b"s2/head", b"s2@9f86d081/head", b"s.x:DE/head", b"t/head", b"s"]
    topic = Compacted({i: (key, b"{}") for i, key in enumerate(own + others)}, len(own + others), [])
    topic.records[len(own)] = own[0], None  # deleted already
    monkeypatch.setattr(removal, "SnapshotTopic", lambda *_: topic)
    monkeypatch.setattr(removal.topics, "bounds", lambda *_: {0: (0, topic.end)})
    config = SimpleNamespace(
        kafka=SimpleNamespace(client=dict),
        transactional_id=str,
        snapshots=SimpleNamespace(topic="snapshots"),
        rows=SimpleNamespace(topic=None),
    )
    assert removal.keys_of(None, config, "s") == {"snapshots": sorted(own[1:])}  # type: ignore[arg-type]
