"""Compares the audit's and the worker's reading of damaged batches."""

from collections import Counter

import numpy as np

from tests.support.batches import Maker, damaged, drain, spoilt
from worker.audit import batches
from worker.kafka.decoding.batches import scan_headers


def ours(fetched, start=0, stop=1 << 62, aborted=(), caps=((0, None),)):
    """Returns (timestamp, value) of the audit's records, and unreadable batches."""
    found, unreadable = located(fetched, start, stop, aborted, caps)
    return [(timestamp, value) for _, timestamp, value in found], unreadable


def located(fetched, start, stop, aborted, caps):
    """Returns the same with offsets."""
    found, unreadable = [], 0
    for read in batches.read(batches.whole(fetched), start, stop, list(aborted), list(caps)):
        unreadable += read.unreadable
        data = read.data.tobytes()
        for offset, timestamp, begin, end in zip(
            read.offsets, read.timestamps, read.begins, read.ends, strict=True
        ):
            found.append((int(offset), int(timestamp), data[begin:end]))
    return found, unreadable


def theirs(fetched, start=0, stop=1 << 62, aborted=(), caps=((0, None),)):
    """Result of the worker's reader, up to an offset."""
    found, bad, _, _ = drain(fetched, start, list(aborted), list(caps))
    kept = [(timestamp, value) for offset, timestamp, value in found if offset < stop]
    return kept, sum(one.end <= stop for one in bad)


def compare(fetched, start, stop, aborted, caps):
    """Compares both readings of a fetch; returns records and unreadable batches."""
    found, bad, end, _ = drain(fetched, start, list(aborted), list(caps))
    whole = batches.whole(fetched)
    size, reached, _ = scan_headers(np.frombuffer(fetched, np.uint8))
    assert batches.reach(fetched) == (size, reached)
    assert max([start, *(one.end for one in whole)]) == end
    read, unreadable = located(fetched, start, stop, aborted, caps)
    assert read == [record for record in found if record[0] < stop]
    assert unreadable == sum(one.end <= stop for one in bad)
    position, corrupt = start, []
    for one in whole:
        if one.corrupt and one.end > position:
            corrupt.append((one.base, one.end, len(one.data)))
        position = max(position, one.end)
    assert corrupt == [(one.offset, one.end, one.size) for one in bad if one.why == "checksum"]
    return read, unreadable


def some_log(seed, n):
    """Returns a log of all kinds of batches, where to begin and stop, and a RNG."""
    rng = np.random.default_rng(seed)
    maker = Maker(rng, most=int(rng.choice([12, 150])))
    made = maker.log(n)
    start = int(rng.integers(maker.offset)) if seed % 3 == 1 else 0
    stop = int(rng.integers(start, maker.offset)) + 1 if seed % 5 == 1 else 1 << 62
    told = [(producer, first) for producer, first, last in maker.aborted if last >= start]
    return made, start, stop, told, rng


def fuzz(n, seed):
    """Compares logs; counts unreadable batches and readable records."""
    told = Counter()
    for k in range(seed, seed + n):
        made, start, stop, aborted, rng = some_log(k, 8)
        harm = spoilt if k % 2 else damaged
        fetched = b"".join(harm(one, rng) if rng.random() < 0.7 else one for one in made)
        later = [None, 40, 300, 5_000]
        caps = sorted({0: None, int(rng.integers(1_000)): later[int(rng.integers(4))]}.items())
        try:
            read, unreadable = compare(fetched, start, stop, aborted, caps)
        except BaseException:
            print(f"seed {k}")
            raise
        told += Counter(unreadable=unreadable, readable=len(read))
    return told
