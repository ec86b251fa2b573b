"""Frequency oracles and `PROTOCOLS`, the registry of oracle classes."""

from collections.abc import Collection

from ldp.oracles.grr import GRR
from ldp.oracles.hadamard import HadamardResponse
from ldp.oracles.olh import OLH
from ldp.oracles.oracle import Oracle
from ldp.oracles.projective import PGR
from ldp.oracles.rappor import RAPPOR, Unary
from ldp.oracles.response import Response
from ldp.oracles.subset import SubsetSelection
from ldp.oracles.unary import OUE, SUE

__all__ = [
    "CHANNELS",
    "GRR",
    "OLH",
    "ORACLES",
    "OUE",
    "PGR",
    "PROTOCOLS",
    "RAPPOR",
    "SUE",
    "HadamardResponse",
    "Oracle",
    "Response",
    "SubsetSelection",
    "Unary",
    "parameters_of",
    "protocol",
]

ORACLES: dict[str, type[Oracle]] = {
    protocol.name: protocol for protocol in (GRR, OLH, OUE, SUE, SubsetSelection, HadamardResponse, PGR)
}
"""Protocols that are configured with ε, by name."""

CHANNELS: dict[str, tuple[type[Oracle], ...]] = {
    "response": (Response,),
    "unary": (Unary, RAPPOR),
}
"""Explicit channels, by name."""

PROTOCOLS: dict[str, tuple[type[Oracle], ...]] = {name: (one,) for name, one in ORACLES.items()} | CHANNELS


def protocol(name: object, keys: Collection[str]) -> type[Oracle]:
    """Returns the protocol's class that best fits a document's keys.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> protocol("unary", {"p", "q", "domain_size"}).__name__, protocol("unary", {"f", "p", "q"}).__name__
        ('Unary', 'RAPPOR')
    """
    if not isinstance(name, str) or name not in PROTOCOLS:
        raise ValueError(f"protocol is {name!r}; allowed are {', '.join(PROTOCOLS)}")
    return max(PROTOCOLS[name], key=lambda one: len({*one.exact} & {*keys}))


def parameters_of(name: str) -> tuple[str, ...]:
    """Returns the names of a protocol's parameters, except ε and d."""
    takes = (key for one in PROTOCOLS[name] for key in (*one.exact, *one.own_parameters))
    return tuple(dict.fromkeys(key for key in takes if key != "epsilon"))
