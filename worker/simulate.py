"""Simulate: draws users from real counts, perturbs their values as their devices would, and sends the reports.

The draw is seeded, so the truth can be drawn again; the coins of the perturbation are secret, as on a device.
"""

import csv
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, RecordListTooLargeError

import ldp
from ldp import frames, wire
from worker.config import Config, Served

_CHUNK = 8192
"""Users that are perturbed at once, at most."""
_CHUNK_BYTES = 8 << 20
"""Reports that are made at once, in bytes; beyond one record."""
_LARGEST_RECORD = 8 << 20
"""A request to the brokers, in bytes; their own limit for the topic is usually lower."""
_IN_FLIGHT = 64 << 20
"""Records sent and not acknowledged yet, in bytes: the producer itself does not bound them."""
_OVERHEAD = 640
"""What a record in flight takes beside its value, in bytes."""
_SETTLE = 1 << 20
"""How often acknowledgements are taken in, in bytes sent."""
_RUN = 64
"""Records in a row to one partition, so that batches fill."""

Counts = npt.NDArray[np.int64]
Progress = Callable[[int], object]
"""Called with the reports acknowledged so far."""


class SimulationError(RuntimeError):
    """The counts cannot be used, or not every report was acknowledged."""


class NoSuchColumnError(SimulationError):
    """The file of counts has no column of the name that was asked for."""


@dataclass(frozen=True)
class Crowd:
    """Users with a value each.

    Attributes:
        histogram: (d,) how many users have each value: the truth.
        values: (n,) the users' values, in random order.
    """

    histogram: Counts
    values: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sent:
    """What was sent and acknowledged.

    Attributes:
        reports: one a user.
        records: well-formed records.
        malformed: malformed records.
        seconds: from the first to the last acknowledgement.
    """

    reports: int
    records: int
    malformed: int
    seconds: float


def read_counts(path: Path, column: str, label_column: str, labels: Sequence[str] | None) -> Counts:
    """Reads how often each value occurs from a CSV file.

    Args:
        path: the file, UTF-8 with a header.
        column: the column of counts.
        label_column: the column of labels; without labels in the stream, the rows are the values in order.
        labels: the stream's labels, in the domain's order.

    Returns:
        (rows,) or (labels,) int64; labels that the file does not have count 0.

    Raises:
        NoSuchColumnError: a column that is not there.
        SimulationError: a count that is none, or a label that the stream does not have.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets write a byte order mark
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SimulationError(f"{path}: cannot be read ({error})") from None
    if not rows:
        raise SimulationError(f"{path}: no rows below the header")
    needed = [column] if labels is None else [column, label_column]
    for name in needed:
        if name not in rows[0]:
            raise NoSuchColumnError(
                f"{path}: no column {name!r}; there are {', '.join(filter(None, rows[0]))}"
            )
    counts = [_count(path, line, row[column]) for line, row in enumerate(rows, 2)]
    if labels is None:
        return np.array(counts, np.int64)
    index = {label: i for i, label in enumerate(labels)}
    result = np.zeros(len(labels), np.int64)
    for line, (row, count) in enumerate(zip(rows, counts, strict=True), 2):
        if row[label_column] not in index:
            raise SimulationError(f"{path}, line {line}: {row[label_column]!r} is no label of the stream")
        result[index[row[label_column]]] += count
    return result


def _count(path: Path, line: int, text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        raise SimulationError(f"{path}, line {line}: {text!r} given; a count is a whole number from 0 on")
    if len(text) > 15:
        raise SimulationError(f"{path}, line {line}: {text!r} given; a count is at most 15 digits long")
    return int(text)


def draw(counts: Counts, users: int, seed: int) -> Crowd:
    """Draws users from the distribution that counts describe.

    Raises:
        SimulationError: all counts are 0.

    Example:
        >>> crowd = draw(np.array([3, 0, 1]), users=1000, seed=7)
        >>> crowd.histogram[1], crowd.histogram.sum(), len(crowd.values)
        (np.int64(0), np.int64(1000), 1000)
    """
    total = counts.sum(dtype=np.float64)
    if not total:
        raise SimulationError("all counts are 0: there is nobody to draw")
    rng = np.random.default_rng(seed)
    histogram = rng.multinomial(users, counts / total)
    return Crowd(histogram, rng.permutation(np.repeat(np.arange(len(counts)), histogram)))


def records(
    stream: ldp.Stream,
    values: npt.NDArray[np.int64],
    batch: int,
    json_share: float,
    malformed_share: float,
    rng: np.random.Generator,
) -> Iterator[tuple[bytes, int]]:
    """Yields (value of a record, reports in it); 0 reports for a malformed one.

    Args:
        stream: whose reports.
        values: of the users; each is perturbed with secret coins.
        batch: reports a record.
        json_share: the probability of a record to be written as JSON.
        malformed_share: the probability that a malformed record goes before a good one.
        rng: for the shares only.
    """
    size = stream.oracle.report_bytes
    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // size) // batch) * batch
    for start in range(0, len(values), chunk):
        reports = stream.oracle.perturb(values[start : start + chunk])
        header = wire.header(stream.fingerprint)
        bodies = reports.tobytes()
        starts = range(0, len(reports), batch)
        as_json = rng.random(len(starts)) < json_share
        spoilt = rng.random(len(starts)) < malformed_share
        for i, first in enumerate(starts):
            last = min(first + batch, len(reports))
            if spoilt[i]:
                yield malformed(header + bodies[first * size : last * size], rng), 0
            if as_json[i]:
                yield frames.encode_json(stream, reports[first:last]), last - first
            else:
                yield header + bodies[first * size : last * size], last - first


def malformed(frame: bytes, rng: np.random.Generator) -> bytes:
    """Returns a record that no worker may accept, made from a good frame: one of the ways in which records go bad."""
    match rng.integers(6):
        case 0:
            return b""
        case 1:
            return bytes([frame[0] + 1]) + frame[1:]
        case 2:
            return frame[:1] + bytes([frame[1] ^ 0xFF]) + frame[2:]
        case 3:
            # within the header: a shorter batch of one-byte reports would still be a good frame
            return frame[: wire.HEADER_BYTES - 1]
        case 4:
            return (
                b'{"fingerprint": "' + frame[1 : wire.HEADER_BYTES].hex().encode() + b'", "reports": [true]}'
            )
        case _:
            return b"\xff" + rng.bytes(31)


def send(
    config: Config,
    served: Served,
    crowd: Crowd,
    *,
    seed: int,
    batch: int = 1,
    json_share: float = 0.0,
    malformed_share: float = 0.0,
    rate: float | None = None,
    progress: Progress | None = None,
) -> Sent:
    """Perturbs and sends one report for each user, spread over the topic's partitions, with the present time.

    Args:
        config: where the brokers are.
        served: the stream and its topic.
        crowd: from `draw`.
        seed: of what is drawn besides: which records are JSON or malformed.
        batch: reports a record: 1 is what devices send; a web service in between would send more.
        json_share: the share of JSON records.
        malformed_share: malformed records for each good one.
        rate: reports a second at most, or None for as fast as it goes.
        progress: told now and then how far it is.

    Raises:
        SimulationError: a report was not acknowledged, or the topic does not exist.
    """
    rng = np.random.default_rng([seed, 1])
    began = time.monotonic()
    pending: deque[tuple[Any, int, int]] = deque()
    acknowledged = sent = good = bad = waiting = unsettled = 0

    def settle(at_most: int) -> None:
        """Takes acknowledgements in, and waits until records of at most so many bytes have none."""
        nonlocal acknowledged, waiting
        while pending and (pending[0][0].is_done or waiting > at_most):
            future, reports, size = pending.popleft()
            waiting -= size
            future.get(timeout=60)
            acknowledged += reports
        if progress is not None:
            progress(acknowledged)

    producer = KafkaProducer(
        **config.kafka.client(),
        client_id="ldp-worker-simulate",
        acks="all",
        compression_type="lz4",
        linger_ms=20,
        batch_size=128 << 10,
        max_request_size=_LARGEST_RECORD,
        max_block_ms=20_000,
        allow_auto_create_topics=False,
    )
    try:
        try:
            partitions = sorted(producer.partitions_for(served.topic))
        except KafkaTimeoutError:
            raise SimulationError(
                f"topic {served.topic!r} is not there; ldp-worker create-topics makes what is missing"
            ) from None
        made = records(served.stream, crowd.values, batch, json_share, malformed_share, rng)
        for i, (value, reports) in enumerate(made):
            partition = partitions[i // _RUN % len(partitions)]
            size = len(value) + _OVERHEAD
            pending.append((producer.send(served.topic, value, partition=partition), reports, size))
            sent += reports
            good += reports > 0
            bad += not reports
            waiting += size
            unsettled += size
            if unsettled >= _SETTLE:
                unsettled = 0
                settle(_IN_FLIGHT)
                if rate is not None:
                    time.sleep(max(0.0, began + sent / rate - time.monotonic()))
        producer.flush()
        settle(0)
    except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
        raise SimulationError(
            f"a record is larger than the max.message.bytes of topic {served.topic!r}, or than {_LARGEST_RECORD} bytes;"
            f" a report has {served.stream.oracle.report_bytes} bytes: put fewer in a record (--batch)"
        ) from error
    except KafkaError as error:
        raise SimulationError(f"not every report was acknowledged: {error}") from error
    finally:
        producer.close(timeout=10)
    return Sent(acknowledged, good, bad, time.monotonic() - began)


def truth(served: Served, crowd: Crowd, sent: Sent, seed: int) -> str:
    """Returns the truth as a JSON document: the drawn histogram, and what was sent."""
    return json.dumps(
        {
            "stream": served.stream.name,
            "fingerprint": served.stream.fingerprint.hex(),
            "seed": seed,
            "users": int(crowd.histogram.sum()),
            "records": sent.records,
            "malformed": sent.malformed,
            "histogram": crowd.histogram.tolist(),
        }
    )
