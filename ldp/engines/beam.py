"""A Beam CombineFn that counts records into a state, on any runner."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.coders import Coder

from ldp.engines.tally import Place, Tally
from ldp.state import State

if TYPE_CHECKING:
    from ldp.stream import Stream

_LENGTH = struct.Struct("<Q")


class Count(beam.CombineFn):  # type: ignore[misc]
    """Counts records into the bytes of a `ldp.state.State`.

    An element is a record's value (bytes or None), or has the attribute ``value``, like the records of
    ``ReadFromKafka(..., with_metadata=True)``. If elements have ``topic``, ``partition`` and ``offset``, the state
    records the offset range of each partition, from the lowest offset to the highest. Pass these attributes only
    if the elements include all records of the range. ``timestamp`` is in milliseconds since the epoch.

    Rejects the same records as a worker. ``ldp-worker import`` needs one state per partition, so use ``CombinePerKey``
    with the partition as key.

    Args:
        stream: the stream of the records.
        most_reports: limit of reports per record, ``streams.most_reports`` of the service; None for no limit.

    Raises:
        ValueError: in the pipeline, if there are more records than offsets (duplicates).
    """

    def __init__(self, stream: Stream, most_reports: int | None = None) -> None:
        super().__init__()
        self._stream, self._most = stream, most_reports

    def create_accumulator(self) -> Tally:
        """Returns an empty tally."""
        return Tally(self._stream, self._most)

    def add_input(self, tally: Tally, element: Any) -> Tally:
        """Counts a record."""
        if element is None or isinstance(element, bytes):
            tally.add(element, None)
        elif getattr(element, "offset", None) is None:
            tally.add(element.value, None)
        else:
            partition = element.topic, element.partition
            tally.add(element.value, Place(partition, element.offset, getattr(element, "timestamp", None)))
        return tally

    def merge_accumulators(self, tallies: Iterable[Tally]) -> Tally:
        """Returns the sum of tallies."""
        whole = self.create_accumulator()
        for tally in tallies:
            whole.merge(tally.states())
        return whole

    def extract_output(self, tally: Tally) -> bytes:
        """Returns the state of all records, as bytes."""
        empty = State(self._stream, 0, self._stream.oracle.zeros(), 0)
        return empty.merge(*tally.states()).to_bytes()

    def get_accumulator_coder(self) -> Coder:
        """Returns a coder that writes tallies as states, not as pickles."""
        return _TallyCoder(self._stream, self._most)


class _TallyCoder(Coder):  # type: ignore[misc]
    """Encodes a tally as its states, each with a length prefix."""

    def __init__(self, stream: Stream, most_reports: int | None) -> None:
        self._stream, self._most = stream, most_reports

    def encode(self, tally: Tally) -> bytes:
        states = [state.to_bytes() for state in tally.states()]
        return b"".join(_LENGTH.pack(len(state)) + state for state in states)

    def decode(self, data: bytes) -> Tally:
        tally, at = Tally(self._stream, self._most), 0
        while at < len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            tally.merge([State.from_bytes(data[at - length : at])])
        return tally

    def is_deterministic(self) -> bool:
        return False  # the order of a tally's partitions is the order of arrival
