"""The store's scripts on a real Redis: every answer and refusal.

The last test compares the store in memory of tests/unit/worker/counting with the scripts through random steps.
"""

import contextlib
import random
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import redis

import ldp
from tests.support.cells import key_in
from tests.support.harness.proxy import Proxy
from tests.support.memory import MemoryStore, World
from tests.support.stores import Singly
from worker import config, store
from worker.audit import reading
from worker.audit.errors import Difference
from worker.check import redis as check
from worker.counting import layout
from worker.counting.cells import Cell
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Answer, Metadata, StateLost, StoredPartition, Unavailable
from worker.redis import connecting
from worker.redis.script import Script
from worker.store.redis import STAGED_SECONDS

pytestmark = pytest.mark.integration

LINEAGE = '{"group": "g"}'
COMMITS = [character * 32 for character in "0123456789abcdef"]


@pytest.fixture
def client(redis_url):
    with contextlib.closing(connecting.connect(config.Redis(url=redis_url))) as connected:
        yield connected


@pytest.fixture
def stream(client):
    """A unique stream name, whose keys are deleted afterwards."""
    name = f"store-{secrets.token_hex(6)}"
    yield name
    if keys := list(client.scan_iter(f"{{{name}:*")):
        client.delete(*keys)


@pytest.fixture
def counts(client, stream):
    return Singly(client, stream)


def everything(client, stream):
    """Returns all keys of a stream with their values and whether they expire."""
    found: dict[bytes, tuple[Any, bool]] = {}
    for key in client.scan_iter(f"{{{stream}:*"):
        value = client.hgetall(key) if client.type(key) == b"hash" else client.get(key)
        found[key] = value, client.ttl(key) > 0
    return found


def fresh(lineage=LINEAGE, offset=0):
    return Metadata(lineage, 1, offset, "", {}, "{}")


def following(before, offset, commit_id, *windows):
    """Returns the metadata and blobs of a commit that changes windows."""
    blobs = {window: f"{window} {offset} {commit_id}".encode() for window in windows}
    after = replace(before, offset=offset, commit_id=commit_id, totals=f'{{"at": {offset}}}')
    return replace(after, blobs={**before.blobs, **dict.fromkeys(windows, commit_id)}), blobs


def without(after, *cells):
    """Returns the metadata of a commit that also drops cells."""
    return replace(after, blobs={cell: by for cell, by in after.blobs.items() if cell not in cells})


def commit(counts, before, offset, commit_id, *windows):
    """Commits to partition 0; returns the metadata."""
    after, blobs = following(before, offset, commit_id, *windows)
    counts.stage(0, "attempt", blobs)
    assert counts.promote(0, "attempt", before, after) is Answer.DONE
    return after


def claimed(counts, epoch=None):
    loaded = counts.claim(0, found(epoch), fresh())
    assert loaded is not None
    return loaded.metadata


def found(epoch, lineage=LINEAGE):
    """Returns the metadata that a claimer found, or None."""
    return None if epoch is None else replace(fresh(lineage), epoch=epoch)


def test_a_claim_initialises_increments_the_epoch_and_loads(counts):
    assert counts.peek(0) is None
    assert counts.cut(0) is None
    assert counts.claim(0, None, fresh(offset=7)) == StoredPartition(fresh(offset=7), {})
    assert counts.peek(0) == fresh(offset=7)
    held = commit(counts, fresh(offset=7), 9, COMMITS[1], "all")
    raised = replace(held, epoch=2)
    # the claim's initial state no longer matters
    assert counts.claim(0, held, fresh(offset=3)) == StoredPartition(
        raised, {"all": f"all 9 {COMMITS[1]}".encode()}
    )
    assert counts.cut(0) == StoredPartition(raised, {"all": f"all 9 {COMMITS[1]}".encode()})
    assert counts.peek(0) == raised
    assert counts.peek(1) is None


def test_cells_missing_from_metadata_are_fetched_again(client, stream, counts):
    early = claimed(counts)
    assert counts.cut(0) == StoredPartition(early, {})
    held = commit(counts, early, 3, COMMITS[1], "all", "0+60000")
    blobs = {cell: f"{cell} 3 {COMMITS[1]}".encode() for cell in held.blobs}
    other = Singly(client, stream)
    assert other.cut(0) == counts.cut(0) == StoredPartition(held, blobs)
    # a commit came between: the claimer learns this, and claims the new state
    assert counts.claim(0, early, fresh()) == StoredPartition(replace(held, epoch=2), blobs)
    assert counts.peek(0) == replace(held, epoch=2)
    following_one, more = following(replace(held, epoch=2), 5, COMMITS[2], "60000+60000")
    after = without(following_one, "0+60000")
    counts.stage(0, "attempt", more)
    assert counts.promote(0, "attempt", replace(held, epoch=2), after) is Answer.DONE
    assert other.cut(0) == counts.cut(0) == StoredPartition(after, {"all": blobs["all"], **more})
    assert other.claim(0, replace(after, epoch=1, blobs={}), fresh()) is None


def test_a_claim_keeps_its_lineage_and_refuses_another(client, stream, counts):
    held = commit(counts, claimed(counts), 9, COMMITS[1], "all")
    before = everything(client, stream)
    assert counts.claim(0, found(1, "another"), fresh("newer")) is None
    assert everything(client, stream) == before
    loaded = counts.claim(0, held, fresh("newer", 3))
    assert loaded == StoredPartition(replace(held, epoch=2), {"all": f"all 9 {COMMITS[1]}".encode()})


def test_a_commit_replaces_its_cells_and_keeps_the_rest(counts):
    held = commit(counts, claimed(counts), 3, COMMITS[1], "a", "b")
    held = commit(counts, held, 5, COMMITS[2], "b")
    held = commit(counts, held, 6, COMMITS[3])  # only markers passed
    assert counts.compare(0, held) is Answer.DONE
    loaded = counts.cut(0)
    assert loaded == StoredPartition(
        held, {"a": f"a 3 {COMMITS[1]}".encode(), "b": f"b 5 {COMMITS[2]}".encode()}
    )
    assert held.blobs == {"a": COMMITS[1], "b": COMMITS[2]}


def test_staged_blobs_expire_and_live_ones_do_not(client, stream, counts):
    held = claimed(counts)
    after, blobs = following(held, 3, COMMITS[1], "all")
    counts.stage(0, "left behind", blobs)
    counts.stage(0, "mine", blobs)
    for attempt in ("left behind", "mine"):
        left = client.ttl(layout.staged_key(stream, 0, attempt, "all"))
        assert STAGED_SECONDS - 60 < left <= STAGED_SECONDS
    assert counts.promote(0, "mine", held, after) is Answer.DONE
    assert client.ttl(layout.cell_key(stream, 0, "all")) == -1
    assert client.ttl(layout.meta_key(stream, 0)) == -1
    assert client.exists(layout.staged_key(stream, 0, "mine", "all")) == 0
    assert client.exists(layout.staged_key(stream, 0, "left behind", "all")) == 1


@pytest.mark.parametrize("step", ["claim", "compare"])
def test_claims_and_compares_remove_the_expiry_of_keys(client, stream, counts, step):
    held = commit(counts, claimed(counts), 3, COMMITS[1], "all", "0+60000")
    counts.cut(0)
    keys = [*everything(client, stream)]
    assert len(keys) == 3
    for key in keys:
        client.expire(key, 3600)
    if step == "claim":
        assert counts.claim(0, held, fresh()) is not None
    else:
        assert counts.compare(0, held) is Answer.DONE
    assert [client.ttl(key) for key in keys] == [-1] * 3


def _meta(**changes):
    return lambda client, stream, counts, held: client.hset(layout.meta_key(stream, 0), mapping=changes)


REFUSED = {
    "gone": (lambda client, stream, *_: client.delete(layout.meta_key(stream, 0)), Answer.LINEAGE),
    "claimed again": (lambda client, stream, counts, held: claimed(counts, held.epoch), Answer.FENCED),
    "counted by another": (
        lambda client, stream, counts, held: commit(counts, held, 8, COMMITS[8], "all"),
        Answer.CONFLICT,
    ),
    "same offset by another": (
        lambda client, stream, counts, held: commit(counts, held, 10, COMMITS[8], "all"),
        Answer.CONFLICT,
    ),
    "set back": (_meta(offset="2", commit_id=COMMITS[7]), Answer.CONFLICT),
    "other commit": (_meta(commit_id=COMMITS[7]), Answer.CONFLICT),
    "other offset": (_meta(offset="4"), Answer.CONFLICT),
    "staged blob gone": (
        lambda client, stream, *_: client.delete(layout.staged_key(stream, 0, "attempt", "b")),
        Answer.STAGING_EXPIRED,
    ),
}
"""Steps before a commit, and its answer."""


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("dropped", [(), ("0+10", "10+10")])
def test_a_refused_commit_writes_nothing(client, stream, counts, case, dropped):
    meanwhile, verdict = REFUSED[case]
    held = commit(counts, claimed(counts), 3, COMMITS[1], "all", "b", *dropped)
    after, blobs = following(held, 10, COMMITS[2], "all", "b")
    after = without(after, *dropped)
    counts.stage(0, "attempt", blobs)
    meanwhile(client, stream, counts, held)
    if verdict is not Answer.STAGING_EXPIRED:
        counts.stage(0, "attempt", blobs)  # another command in between may have used it up
    before = everything(client, stream)
    assert counts.promote(0, "attempt", held, after) is verdict
    assert everything(client, stream) == before
    if verdict is not Answer.STAGING_EXPIRED:
        assert counts.compare(0, held) is verdict
    assert everything(client, stream) == before


def test_a_repeated_commit_succeeds_without_writing(client, stream, counts):
    held = claimed(counts)
    after, blobs = following(held, 10, COMMITS[2], "all")
    counts.stage(0, "first", blobs)
    assert counts.promote(0, "first", held, after) is Answer.DONE
    counts.stage(0, "second", blobs)
    before = everything(client, stream)
    assert counts.promote(0, "second", held, after) is Answer.DONE
    assert everything(client, stream) == before
    other = replace(held, lineage='{"group": "other"}')
    assert counts.promote(0, "second", other, after) is Answer.LINEAGE
    # but not after another claim: its worker has loaded the state, and continues from there
    claimed(counts, after.epoch)
    assert counts.promote(0, "second", held, after) is Answer.FENCED


_FAILING = """
local left, writes, real = {at}, {{HSET = true, DEL = true, RENAME = true, PERSIST = true}}, redis
local redis = {{error_reply = real.error_reply}}
function redis.call(name, ...)
  left = left - (writes[name] and 1 or 0)
  if left == 0 and writes[name] then
    error('MISCONF a disk that is full')
  end
  return real.call(name, ...)
end
"""


@pytest.mark.parametrize("dropped", [(), ("0+10", "10+10")])
def test_a_commit_that_fails_at_any_write_is_completed_by_a_retry(client, stream, counts, dropped):
    text = (Path(store.__file__).parent / "promote.lua").read_text()
    for at in range(1, 100):
        client.delete(*everything(client, stream), "none")
        held = commit(counts, claimed(counts), 3, COMMITS[1], "all", "b", *dropped)
        after, blobs = following(held, 10, COMMITS[2], "all", "b")
        after = without(after, *dropped)
        counts.stage(0, "attempt", blobs)
        failing = Singly(client, stream)
        failing._promote = Script(client, _FAILING.format(at=at) + text)
        try:
            assert failing.promote(0, "attempt", held, after) is Answer.DONE
            break
        except Unavailable as error:
            assert "MISCONF" in str(error)
        answer = counts.promote(0, "attempt", held, after)
        if answer is Answer.STAGING_EXPIRED:
            counts.stage(0, "again", blobs)
            answer = counts.promote(0, "again", held, after)
        assert answer is Answer.DONE
        assert counts.cut(0) == StoredPartition(after, blobs), at
        assert not any(
            ends for key, (_, ends) in everything(client, stream).items() if b":staged:" not in key
        )
    assert 1 < at < 99


def test_a_commit_with_a_lost_reply_is_sent_once_and_recognised(
    client, redis_url, stream, counts, monkeypatch
):
    held = commit(counts, claimed(counts), 3, COMMITS[1], "all")
    after, blobs = following(held, 10, COMMITS[2], "all")
    with _doubtful(redis_url, stream) as (proxy, doubtful):
        doubtful.stage(0, "first", blobs)
        assert doubtful.peek(0) == held
        sent = _calls(monkeypatch)
        proxy.swallow()
        with pytest.raises(Unavailable, match="Timeout"):
            doubtful.promote(0, "first", held, after)
        assert len(sent) == 1  # the library did not try again
        proxy.mend()
        assert counts.peek(0) == after
        doubtful.stage(0, "second", blobs)
        assert doubtful.promote(0, "second", held, after) is Answer.DONE
        with pytest.raises(Unavailable, match="Error"):
            proxy.refuse()
            doubtful.peek(0)


@pytest.mark.parametrize("offset", [9, 12])
def test_a_dropped_pane_is_deleted_even_at_an_unchanged_offset(client, stream, counts, offset):
    held = commit(counts, claimed(counts), 9, COMMITS[1], "all", "0+10", "10+10", "20+10")
    other = counts.claim(1, None, fresh())
    assert other is not None
    theirs, theirs_staged = following(other.metadata, 9, COMMITS[1], "all", "0+10")
    counts.stage(1, "attempt", theirs_staged)
    assert counts.promote(1, "attempt", other.metadata, theirs) is Answer.DONE
    counts.stage(0, "left behind", {"0+10": b"staged"})
    client.set(layout.cell_key(f"{stream}s", 0, "0+10"), "another stream's")
    before = everything(client, stream)
    after, blobs = following(held, offset, COMMITS[2], "all")
    after = without(after, "0+10", "10+10")
    counts.stage(0, "attempt", blobs)
    assert counts.promote(0, "attempt", held, after) is Answer.DONE
    now = everything(client, stream)
    gone = {layout.cell_key(stream, 0, cell).encode() for cell in ("0+10", "10+10")}
    assert before.keys() - now.keys() == gone
    assert now.keys() <= before.keys()
    changed = {layout.meta_key(stream, 0).encode(), layout.cell_key(stream, 0, "all").encode()}
    assert {key for key in now if now[key] != before[key]} == changed
    assert client.getdel(layout.cell_key(f"{stream}s", 0, "0+10")) == b"another stream's"
    kept = {"all": blobs["all"], "20+10": f"20+10 9 {COMMITS[1]}".encode()}
    assert counts.cut(0) == StoredPartition(after, kept)
    assert counts.compare(0, after) is Answer.DONE
    assert counts.compare(0, held) is Answer.CONFLICT
    # a commit that drops the last pane without a change of any other cell
    last = without(replace(after, commit_id=COMMITS[3]), "20+10")
    assert counts.promote(0, "nothing staged", after, last) is Answer.DONE
    assert counts.cut(0) == StoredPartition(last, {"all": blobs["all"]})
    assert client.exists(layout.cell_key(stream, 0, "20+10")) == 0


def test_a_drop_with_a_lost_reply_is_recognised_by_the_retry(client, redis_url, stream, counts):
    held = commit(counts, claimed(counts), 9, COMMITS[1], "all", "0+10", "10+10")
    after, blobs = following(held, 9, COMMITS[2], "all")
    after = without(after, "0+10")
    with _doubtful(redis_url, stream) as (proxy, doubtful):
        doubtful.stage(0, "first", blobs)
        assert doubtful.peek(0) == held
        proxy.swallow()
        with pytest.raises(Unavailable, match="Timeout"):
            doubtful.promote(0, "first", held, after)
        proxy.mend()
        assert counts.peek(0) == after
        assert client.exists(layout.cell_key(stream, 0, "0+10")) == 0
        doubtful.stage(0, "second", blobs)
        before = everything(client, stream)
        assert doubtful.promote(0, "second", held, after) is Answer.DONE
        assert everything(client, stream) == before


@contextlib.contextmanager
def _doubtful(redis_url, stream):
    """Yields a proxy and a store behind it."""
    options = redis.connection.parse_url(redis_url)  # type: ignore[no-untyped-call]
    with Proxy((options.get("host", "localhost"), options.get("port", 6379))) as proxy:
        url = f"redis://127.0.0.1:{proxy.port}/{options.get('db', 0)}"
        yield proxy, Singly(connecting.connect(config.Redis(url=url)), stream)


def _calls(monkeypatch):
    """Returns a list that records each script call of this process."""
    calls: list[bytes] = []
    send = redis.Connection.send_packed_command

    def noting(self, command, *more, **options):
        sent = b"".join([command] if isinstance(command, bytes) else command)
        calls.extend(re.findall(rb"\r\nEVAL(?:SHA)?\r\n", sent))
        send(self, command, *more, **options)

    monkeypatch.setattr(redis.Connection, "send_packed_command", noting)
    return calls


def test_a_read_never_mixes_two_commits(counts):
    held = commit(counts, claimed(counts), 1, COMMITS[0], "a", "b")
    done = threading.Event()
    mixed: list[StoredPartition] = []
    seen: set[int] = set()

    def read():
        while not done.is_set():
            loaded = counts.cut(0)
            assert loaded is not None
            offset, commit_id = loaded.metadata.offset, loaded.metadata.commit_id
            seen.add(offset)
            if loaded.blobs != {name: f"{name} {offset} {commit_id}".encode() for name in ("a", "b")}:
                mixed.append(loaded)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for step in range(2, 1000):
            held = commit(counts, held, step, COMMITS[step % 16], "a", "b")
            if step > 200 and len(seen) > 20:
                break
    finally:
        done.set()
        reader.join()
    assert not mixed
    assert len(seen) > 20


def test_metadata_without_an_epoch_is_state_loss_and_stays_unchanged(client, stream, counts):
    commit(counts, claimed(counts), 3, COMMITS[1], "all")
    client.hdel(layout.meta_key(stream, 0), "epoch")
    before = everything(client, stream)
    with pytest.raises(StateLost, match="epoch"):
        counts.peek(0)
    with pytest.raises(Unavailable, match="without an epoch"):
        counts.claim(0, None, fresh())
    assert counts.claim(0, found(1), fresh()) is None
    assert everything(client, stream) == before


def _two_counted(counts, stream):
    """Commits the same counts to partitions 0 and 1."""
    served = ldp.Stream(stream, ldp.GRR(epsilon="1", domain_size=3))
    base, held = layout.initial(LINEAGE, PartitionState.fresh(ldp.Fleet((served,)), 0)), {}
    for partition in (0, 1):
        state = PartitionState.fresh(ldp.Fleet((served,)), 0)
        state.offset, state.cells[key_in(state)] = 4, {"": Cell(4, np.array([1, 1, 2], np.int64))}
        state.accepted, state.windows.watermark = 4, 1009
        assert counts.claim(partition, None, base) == StoredPartition(base, {})
        held[partition], blobs = layout.dump(state, base, COMMITS[1 + partition])
        counts.stage(partition, "attempt", blobs)
        assert counts.promote(partition, "attempt", base, held[partition]) is Answer.DONE
    return served, base, held


@pytest.mark.parametrize("swapped", ["both", "metadata", "blob"])
def test_swapped_partitions_are_lost_state_to_every_reader(client, stream, counts, swapped):
    served, base, held = _two_counted(counts, stream)
    keys = {
        "metadata": [layout.meta_key(stream, p) for p in (0, 1)],
        "blob": [layout.cell_key(stream, p, *held[0].blobs) for p in (0, 1)],
    }
    for one, other in keys.values() if swapped == "both" else [keys[swapped]]:
        client.rename(one, "swap")
        client.rename(other, one)
        client.rename("swap", other)

    def load(stored):
        assert stored is not None
        layout.load(ldp.Fleet((served,)), stored.metadata, stored.blobs)

    for partition in (0, 1):
        if swapped != "blob":
            with pytest.raises(StateLost, match="of another partition"):
                counts.peek(partition)
        with pytest.raises(StateLost, match="another"):
            load(counts.cut(partition))
        with pytest.raises(StateLost, match="another"):
            load(counts.claim(partition, held[partition], base))  # by the earlier read


@pytest.mark.parametrize("wrong", ["metadata", "blob"])
def test_a_key_of_another_type_is_lost_state_to_each_reader(client, stream, counts, wrong):
    _, base, held = _two_counted(counts, stream)
    blob = layout.cell_key(stream, 0, *held[0].blobs)
    key = layout.meta_key(stream, 0) if wrong == "metadata" else blob
    client.delete(key)
    client.rpush(key, "x")
    readers: list[Callable[[], object]] = [
        lambda: counts.claim(0, held[0], base),
        lambda: counts.cut(0),
        lambda: Singly(client, stream).cut(0),
    ]
    for read in [lambda: counts.peek(0), *readers] if wrong == "metadata" else readers:
        with pytest.raises(StateLost, match="another type"):
            read()
    checked = check._metadata(client, cast(Any, SimpleNamespace(name=stream)), 2)
    assert [isinstance(checked[p], StateLost) for p in (0, 1)] == [wrong == "metadata", False]
    if wrong == "metadata":
        assert counts.compare(0, held[0]) is Answer.LINEAGE
    else:
        assert counts.peek(0) == held[0]  # the claim raised no epoch
    with pytest.raises(Difference, match="another type than the worker wrote"):
        reading.cut_of(client, f"{{{stream}:0}}:")
    assert isinstance(counts.cut_all([0, 1])[1], StoredPartition)


class _Unverified(World):
    """A world in memory without checks of blobs."""

    def verify(self, partition, before=None):
        """Accepts every blob."""


@pytest.mark.parametrize("seed", range(3))
def test_the_store_in_memory_matches_the_scripts(client, stream, counts, seed):
    rng = random.Random(seed)
    world = _Unverified(ldp.Stream("still", ldp.GRR(epsilon="1", domain_size=3)), partitions=3)
    model = MemoryStore(world)
    known: dict[int, list[Metadata]] = {0: [], 1: []}  # belief of a writer, stale or not
    commits: dict[int, list[tuple[str, Metadata, Metadata]]] = {0: [], 1: []}
    answers: set[Any] = set()

    def both(step):
        real, modelled = step(counts), step(model)
        assert real == modelled
        answers.add(real if isinstance(real, Answer) else type(real))
        return real

    for turn in range(400):
        partition = rng.randrange(2)
        beliefs = known[partition]
        kind = rng.random()
        if kind < 0.15 or not beliefs:
            seen = rng.choice([None, *beliefs[-3:]])
            lineage = "newer" if rng.random() < 0.2 else LINEAGE if seen is None else seen.lineage
            loaded = both(
                lambda s: s.claim(partition, seen, fresh(lineage))  # noqa: B023
            )
            if loaded is not None:
                beliefs.append(loaded.metadata)
        elif kind < 0.5:
            before = rng.choice(beliefs[-4:])
            before = replace(before, lineage="other") if rng.random() < 0.05 else before
            windows = rng.sample(["a", "b", "c"], rng.randint(0, 2))
            after, blobs = following(before, before.offset + rng.randint(0, 3), f"{turn:032x}", *windows)
            if rng.random() < 0.3:
                kept = [name for name in after.blobs if name not in windows]
                after = without(after, *rng.sample(kept, rng.randint(0, len(kept))))
            attempt = f"attempt {turn}"
            staged = {name: blob for name, blob in blobs.items() if rng.random() < 0.85}
            if staged:
                both(lambda s: s.stage(partition, attempt, staged))  # noqa: B023
            commits[partition].append((attempt, before, after))
            if both(lambda s: s.promote(partition, attempt, before, after)) is Answer.DONE:  # noqa: B023
                beliefs.append(after)
        elif kind < 0.6 and commits[partition]:
            attempt, before, after = rng.choice(commits[partition][-3:])
            both(lambda s: s.promote(partition, attempt, before, after))  # noqa: B023
        elif kind < 0.8:
            held = rng.choice(beliefs[-4:])
            both(lambda s: s.compare(partition, held))  # noqa: B023
        elif kind < 0.82 and world.stored[partition].blobs:
            name = rng.choice(sorted(world.stored[partition].blobs))
            client.delete(layout.cell_key(stream, partition, name))
            _lose(world, partition, name)
        elif kind < 0.83:
            client.delete(layout.meta_key(stream, partition))
            for name in world.stored[partition].blobs:
                client.delete(layout.cell_key(stream, partition, name))
            del world.stored[partition]
            beliefs.clear()
        both(lambda s: s.peek(partition))  # noqa: B023
        both(lambda s: s.cut(partition))  # noqa: B023
    assert answers >= {*Answer, StoredPartition, Metadata, type(None)}


def _lose(world, partition, name):
    stored = world.stored[partition]
    left: Mapping[str, bytes] = {window: blob for window, blob in stored.blobs.items() if window != name}
    world.stored[partition] = replace(stored, blobs=left)
