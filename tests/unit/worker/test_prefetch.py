"""Prefetch: fetches come out as they went in, decoded ahead, and what is forgotten never comes."""

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from worker.kafka.decoding.records import Arena
from worker.kafka.reports.prefetch import Prefetch


class Source:
    """Hands out what it is given, one after the other; raises what is an error."""

    def __init__(self, *chunks):
        self.chunks, self.arenas = deque(chunks), []
        self.began, self.go = threading.Event(), threading.Event()
        self.go.set()

    def read(self, arena):
        self.began.set()
        assert self.go.wait(30)
        self.arenas.append(arena)
        if not self.chunks:
            return None
        if isinstance(chunk := self.chunks.popleft(), Exception):
            raise chunk
        return chunk


@pytest.fixture
def prefetch():
    prefetch = Prefetch(100, ThreadPoolExecutor(1))
    yield prefetch
    prefetch.close()


def everything(prefetch):
    found = []
    while (taken := prefetch.next()) is not None:
        found.append(taken)
    return found


def test_fetches_are_returned_in_order(prefetch):
    assert prefetch.empty
    assert prefetch.next() is None
    prefetch.add(3, Source("a", "b"), 10)
    prefetch.add(1, Source(), 10)
    prefetch.add(3, Source("c"), 10)
    assert not prefetch.empty
    assert everything(prefetch) == [(3, "a"), (3, "b"), (3, "c")]
    assert prefetch.empty


def test_the_prefetch_is_full_exactly_at_its_budget(prefetch):
    prefetch.add(0, Source("a"), 99)
    assert not prefetch.full
    prefetch.add(0, Source("b"), 1)
    assert prefetch.full
    prefetch.next()
    prefetch.next()
    assert not prefetch.full
    prefetch.add(0, Source("c"), 10**9)  # one fetch is always taken
    assert prefetch.full
    assert everything(prefetch) == [(0, "c")]
    assert not prefetch.full


def test_the_next_chunk_is_decoded_while_this_one_is_counted(prefetch):
    source = Source("a", "b")
    prefetch.add(0, source, 1)
    assert source.began.wait(30)  # the first, before anybody asks
    source.began.clear()
    assert prefetch.next() == (0, "a")
    assert source.began.wait(30)  # the second, while the first is counted
    prefetch.add(0, Source("c"), 1)
    assert everything(prefetch) == [(0, "b"), (0, "c")]


def test_a_returned_chunk_stays_valid_while_the_next_one_is_decoded(prefetch):
    source = Source("a", "b", "c", "d")
    prefetch.add(0, source, 1)
    everything(prefetch)
    assert all(isinstance(arena, Arena) for arena in source.arenas)
    assert all(one is not other for one, other in zip(source.arenas[:4], source.arenas[1:4], strict=False))


def test_chunks_of_forgotten_partitions_are_discarded(prefetch):
    for partition in (0, 1, 0, 2):
        prefetch.add(partition, Source(f"{partition}a", f"{partition}b"), 30)
    assert prefetch.next() == (0, "0a")
    prefetch.forget([0])  # "0b" is on its way already
    prefetch.add(0, Source("again"), 30)
    assert everything(prefetch) == [(1, "1a"), (1, "1b"), (2, "2a"), (2, "2b"), (0, "again")]
    prefetch.add(0, Source("x"), 30)
    prefetch.forget()
    assert prefetch.empty
    assert not prefetch.full
    assert prefetch.next() is None
    prefetch.add(1, Source("y"), 30)
    assert everything(prefetch) == [(1, "y")]


def test_a_decoding_error_is_raised_by_the_next_call(prefetch):
    prefetch.add(0, Source(MemoryError()), 1)
    with pytest.raises(MemoryError):
        prefetch.next()
