"""Records of simulated users, perturbed with secret coins."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import ldp
from ldp import wire

_CHUNK, _CHUNK_BYTES = 8192, 8 << 20
"""Maximum users, and maximum bytes of reports, perturbed at once."""


def records(
    stream: ldp.Stream,
    values: npt.NDArray[np.int64],
    *,
    seed: int,
    batch: int = 1,
    malformed_share: float = 0.0,
) -> Iterator[tuple[bytes, int]]:
    """Yields each record's value and number of reports (0: malformed).

    `malformed_share` is the probability that a malformed record precedes a record. `seed` determines only these draws,
    not the reports.
    """
    rng = np.random.default_rng([seed, 1])
    size = stream.oracle.report_bytes
    chunk = max(1, min(_CHUNK, _CHUNK_BYTES // size) // batch) * batch
    for start in range(0, len(values), chunk):
        reports = stream.oracle.perturb(values[start : start + chunk])
        header = wire.header(stream.fingerprint)
        bodies = reports.tobytes()
        starts = range(0, len(reports), batch)
        spoilt = rng.random(len(starts)) < malformed_share
        for i, first in enumerate(starts):
            last = min(first + batch, len(reports))
            if spoilt[i]:
                yield malformed(header + bodies[first * size : last * size], rng), 0
            yield header + bodies[first * size : last * size], last - first


def malformed(frame: bytes, rng: np.random.Generator) -> bytes:
    """Returns a malformed record from a good frame."""
    match rng.integers(6):
        case 0:
            return b""
        case 1:
            return bytes([frame[0] + 2]) + frame[1:]
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
