"""Perturbing one value on a device: the time must not reveal the value."""

from collections.abc import Iterator
from functools import partial

import ldp
from tests.bench.measure import Line, spread

VALUES = (0, 1, 8, 80, 500, 1093, 5000, 9999)


def lines() -> Iterator[Line]:
    """Seconds a report for small and large values, for each protocol."""
    d = VALUES[-1] + 1
    for oracle in (
        ldp.GRR("1", d),
        ldp.OLH("1", d),
        ldp.OLH("1", d, hash="xxh32"),
        ldp.OUE("1", d),
        ldp.SUE("1", d),
        ldp.SubsetSelection("4", d),
        ldp.HadamardResponse("1", d),
        ldp.PGR("1", d),
        ldp.PGR("4", d),
    ):
        yield spread(
            f"perturb_one of {oracle.name} by value",
            {value: partial(oracle.perturb_one, value) for value in VALUES},
            setup=", ".join(
                f"{key}={value}" for key, value in oracle.parameters().items() if key != "protocol"
            ),
        )
