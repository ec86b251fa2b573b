"""Decoding frames: a batch as columns against one record at a time."""

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

import ldp
from ldp import frames
from tests.bench.measure import Line, compare

RECORDS = 100_000


def lines() -> Iterator[Line]:
    """Records a second, for binary frames of one report."""
    stream = ldp.Stream("bench", ldp.OLH("1", domain_size=1024))
    rng = np.random.default_rng(2)
    reports = stream.oracle.perturb(rng.integers(1024, size=RECORDS), rng=rng)
    values = [frames.encode(stream, report) for report in reports[:, None]]
    buffer = np.frombuffer(b"".join(values), np.uint8)
    bounds = np.arange(RECORDS + 1, dtype=np.int64) * len(values[0])

    decoded = frames.decode(stream, buffer, bounds[:-1], bounds[1:])
    theirs, reasons = one_by_one(stream, values)
    assert np.array_equal(decoded.reports, theirs), "the peer decodes otherwise"
    assert decoded.reasons == reasons == {}, "the peer rejects otherwise"
    yield compare(
        "decode binary frames of one report",
        lambda: frames.decode(stream, buffer, bounds[:-1], bounds[1:]),
        lambda: one_by_one(stream, values),
        peer_name="Python, one record at a time",
        setup=f"OLH, {len(values[0])} bytes a record, {RECORDS} records a call; "
        "ours from a joined buffer, the peer from a list of bytes",
        rate=(RECORDS, "records"),
    )


def one_by_one(stream: ldp.Stream, values: Sequence[bytes]) -> tuple[npt.NDArray[np.void], dict[int, str]]:
    """The reports of all sound records, and why others are rejected, with `struct`."""
    header = b"\x01" + stream.fingerprint
    layout = struct.Struct("<IB")
    g = stream.oracle.fields["bucket"]
    reports: list[tuple[int, ...]] = []
    reasons: dict[int, str] = {}
    for i, value in enumerate(values):
        body = len(value) - len(header)
        if not value.startswith(header):
            reasons[i] = "header"
        elif body <= 0 or body % layout.size:
            reasons[i] = "length"
        else:
            found = list(layout.iter_unpack(value[len(header) :]))
            if all(bucket < g for _, bucket in found):
                reports += found
            else:
                reasons[i] = "range"
    return np.array(reports, stream.oracle.report_dtype), reasons
