"""Sizes on the wire against numpy and real frames."""

import numpy as np
import pytest

import ldp
from ldp import frames, wire
from ldp.client import Client
from ldp.oracles import ORACLES

over_oracles = pytest.mark.parametrize("name", ORACLES)
over_domains = pytest.mark.parametrize("d", [2, 16, 256, 257, 65_536, 65_537])


@over_oracles
@over_domains
def test_reports_and_frames_have_the_stated_sizes(name, d):
    oracle = ldp.oracle(name, "1", d)
    stream = ldp.Stream("s", oracle)
    assert oracle.report_bytes == oracle.report_dtype.itemsize
    assert wire.frame_bytes(oracle.report_bytes) == len(Client(stream.document()).report(d - 1))
    reports = oracle.perturb([0, d - 1, 1], rng=np.random.default_rng(0))
    frame = frames.encode(stream, reports)
    assert wire.frame_bytes(oracle.report_bytes, 3) == len(frame)
    assert frame == wire.header(stream.fingerprint) + reports.tobytes()


def test_a_bounded_integer_takes_the_fewest_bytes():
    for bits in range(33):
        for bound in {max(1, (1 << bits) - 1), 1 << bits, min(1 << 32, (1 << bits) + 1)}:
            size = wire.bytes_below(bound)
            (bound - 1).to_bytes(size, "little")
            assert size == 1 or bound - 1 >= 1 << 4 * size  # half the bytes do not hold it


def test_a_bound_above_four_bytes_is_refused():
    with pytest.raises(
        ValueError, match="bound of an integer is 4294967297; allowed are bounds up to 4294967296"
    ):
        wire.report_bytes([(1 << 32) + 1], None)
