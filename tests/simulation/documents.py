"""Documents and segments of histories: the records of clients, and the cell of each report.

The names in force and the cell of a report are computed here from the recorded rules, without the worker's code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import ldp
from ldp import frames

Statuses = Mapping[str, tuple[int, bool]]
"""Name -> its version, and whether it is retired."""

POOL = [
    ldp.Stream("one", ldp.GRR(epsilon="1", domain_size=3), ("red", "blue", "grey")),
    ldp.Stream("one", ldp.GRR(epsilon="1/2", domain_size=3), ("blue", "green", "red")),
    ldp.Stream(
        "one", ldp.GRR(epsilon="2", domain_size=4), ("grey", "red", "pink", "blue"), segment="country:app"
    ),
    ldp.Stream("one", ldp.GRR(epsilon="1", domain_size=2), ("green", "blue"), segment="country"),
    ldp.Stream("one", ldp.GRR(epsilon="1", domain_size=2), ("red", "black")),
]
"""The documents of a stream, in the order in which clients came to have them."""
DECLARED = ("DE", "US:1", "US:2")
SENT, WRONG = ("DE", "FR", "US", "DE:1", "US:1", "US:2", "US:9"), ("D E", ":1")
"""Segments that clients send, and texts that are none."""


def join(*listed: Statuses) -> dict[str, tuple[int, bool]]:
    """Returns all names, each with its highest pair."""
    joined = dict[str, tuple[int, bool]]()
    for names in listed:
        for name, pair in names.items():
            joined[name] = max(joined.get(name, pair), pair)
    return joined


class Sent(NamedTuple):
    """A well-formed record of a document, as far as its segment may be."""

    document: str
    segment: str | None
    bad: bool  # whether the segment is malformed, missing or superfluous
    size: int
    slots: Mapping[str, Sequence[int]]  # cell -> the counters of its reports


def judged(sent: Sent, most: int | None, documents: Statuses, segments: Statuses) -> Any:
    """Returns the counters of a record's reports, or the reason of its rejection."""
    if sent.document not in documents:
        return "fingerprint"
    if documents[sent.document][1]:
        return "retired"
    if sent.bad:
        return "segment"
    if most is not None and sent.size > most:
        return "many"
    return sent.slots[cell_of(sent.segment, segments)]


def cell_of(segment: str | None, declared: Statuses) -> str:
    """Returns the cell of a segment: its own, or the rest of its longest declared prefix."""
    if segment is None:
        return ""
    if segment in declared and not declared[segment][1]:
        return segment
    for prefix in reversed(prefixes(segment)):
        live = prefix in declared and not declared[prefix][1]
        if live or any(name.startswith(f"{prefix}:") for name in declared):
            return f"{prefix}:~"
    return "~"


@cache
def prefixes(segment: str) -> tuple[str, ...]:
    """Returns the prefixes of a segment, the shortest first, and the segment."""
    levels = segment.split(":")
    return tuple(":".join(levels[:n]) for n in range(1, len(levels) + 1))


class Counters:
    """The counters of a stream, one for each document, cell and value.

    `streams` has the documents by fingerprint, `places` the first counter and the number of counters of each document
    and cell.
    """

    def __init__(self, streams: Sequence[ldp.Stream]) -> None:
        self.streams = {each.fingerprint.hex(): each for each in streams}
        self.places = dict[tuple[str, str], tuple[int, int]]()
        self.size = 0
        inner = {prefix for name in DECLARED for prefix in prefixes(name)}
        apart = ("~", *sorted({*DECLARED, *(f"{prefix}:~" for prefix in inner)}))
        for name, each in self.streams.items():
            for cell in ("",) if each.segment is None else apart:
                self.places[name, cell] = self.size, len(each.oracle.zeros())
                self.size += len(each.oracle.zeros())

    def cells(self, document: str) -> dict[str, tuple[int, int]]:
        """Returns the first counter and the number of counters of a document's cells."""
        return {cell: place for (name, cell), place in self.places.items() if name == document}

    def of(self, vector: Sequence[int], document: str, segment: str | None = None) -> list[int]:
        """Returns the counts of a document, or of a segment and all segments below it in it."""
        total = [0] * len(self.streams[document].oracle.zeros())
        for cell, (at, n) in self.cells(document).items():
            if segment is None or cell == segment or cell.startswith(f"{segment}:"):
                total = [a + b for a, b in zip(total, vector[at : at + n], strict=True)]
        return total

    def sent(self) -> Iterator[tuple[bytes, Sent]]:
        """Yields records of each document and segment, and some whose segment is wrong."""
        for (name, each), most in itertools.product(self.streams.items(), (1, 2)):
            for indices in itertools.product(range(each.oracle.domain_size), repeat=most):
                slots = {cell: [at + i for i in indices] for cell, (at, _) in self.cells(name).items()}
                reports = np.array([(i,) for i in indices], each.oracle.report_dtype)
                bare = ldp.Stream("one", each.oracle)  # its frames have no segment
                start, payload = each.fingerprint, frames.encode(bare, reports)[5:]
                yield b"\x01" + start + payload, Sent(name, None, each.segment is not None, most, slots)
                for text in (*SENT, *WRONG):
                    bad = each.segment is None or text in WRONG
                    frame = b"\x02" + start + bytes([len(text)]) + text.encode() + payload
                    yield frame, Sent(name, None if bad else text, bad, most, slots)


def clients(counters: Counters) -> list[list[tuple[bytes, Sent]]]:
    """Returns the records of each document's clients; a few have a wrong segment."""
    found = list[list[tuple[bytes, Sent]]]()
    for _, own in itertools.groupby(counters.sent(), lambda pair: pair[1].document):
        good, bad = list[tuple[bytes, Sent]](), list[tuple[bytes, Sent]]()
        for frame, sent in own:
            (bad if sent.bad else good).append((frame, sent))
        found.append(good + bad[:: max(1, 10 * len(bad) // len(good))])
    return found
