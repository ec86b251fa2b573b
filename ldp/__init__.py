"""Frequency estimation under local differential privacy.

Names are loaded at first use: ``import ldp`` does not import numpy or numba.

Example:
    >>> import ldp
    >>> oracle = ldp.oracle("olh", epsilon="1", domain_size=845)
    >>> oracle.estimate_reports(oracle.perturb([3, 3, 844])).frequencies.shape
    (845,)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    from ldp import analysis, consistency, frames, query, sampling, snapshot
    from ldp.estimate import Estimate
    from ldp.fleet import Fleet
    from ldp.oracles import (
        GRR,
        OLH,
        OUE,
        PGR,
        RAPPOR,
        SUE,
        HadamardResponse,
        Oracle,
        Response,
        SubsetSelection,
        Unary,
    )
    from ldp.query import answer
    from ldp.stream import Stream

    __version__: str

# fmt: off
__all__ = [
    "GRR", "OLH", "OUE", "PGR", "RAPPOR", "SUE", "Estimate", "Fleet", "HadamardResponse", "Oracle",
    "Response", "Stream", "SubsetSelection", "Unary", "analysis", "answer", "consistency", "frames",
    "oracle", "query", "sampling", "snapshot",
]
# fmt: on

_MODULES = {"analysis", "consistency", "frames", "query", "sampling", "snapshot"}
_ORACLES = "GRR HadamardResponse OLH OUE Oracle PGR RAPPOR Response SUE SubsetSelection Unary"
_HOMES = dict.fromkeys(_ORACLES.split(), "ldp.oracles") | {
    "Estimate": "ldp.estimate",
    "Fleet": "ldp.fleet",
    "Stream": "ldp.stream",
    "answer": "ldp.query",
}


def __getattr__(name: str) -> Any:
    """Returns a public name, and imports its module at the first use."""
    if name in _MODULES:
        return import_module(f"ldp.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'ldp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ldp-worker")
    except PackageNotFoundError:
        return "0+source"


def oracle(
    name: str, epsilon: str | int | Fraction | None = None, domain_size: int | None = None, **parameters: Any
) -> Oracle:
    """Returns the frequency oracle of a protocol.

    Args:
        name: "grr", "olh" (``g=2`` is Binary Local Hashing), "oue", "sue", "subset", "hadamard" or "pgr"; or an
            explicit channel: "response" or "unary".
        epsilon: exact privacy budget of one report: "1", "0.5", "1/3", an int or a Fraction; 0 < ε ≤ 64. Omit it for
            an explicit channel; if the channel's ε is infinite, pass "infinite".
        domain_size: d, the number of values; 1 ≤ d ≤ 2²⁴.
        **parameters: ``hash`` and ``g`` for "olh"; ``k`` for "subset"; ``prime`` and ``dimension`` for "pgr"; ``p`` for
            "response"; ``p`` and ``q`` for "unary", plus ``f`` for RAPPOR.

    Raises:
        TypeError: a missing or unknown parameter, or an argument of the wrong type, such as a float ε.
        ValueError: a name, ε, domain size or parameter that is not allowed.

    Example:
        >>> oracle("olh", epsilon="1/2", domain_size=100).parameters()
        {'protocol': 'olh', 'epsilon': '1/2', 'domain_size': 100, 'g': 3, 'hash': 'mul32'}
    """
    from ldp.oracles import PROTOCOLS, protocol

    named = {"epsilon": epsilon, "domain_size": domain_size}
    given = {key: value for key, value in named.items() if value is not None} | parameters
    made = protocol(name, given.keys())
    allowed = dict.fromkeys(("epsilon", "domain_size", *made.exact, *made.own_parameters))
    if unknown := [key for key in given if key not in allowed]:
        raise TypeError(f"{name} has no parameter {unknown[0]!r}; allowed are {', '.join(allowed)}")
    if any(key not in given for key in made.exact):
        needed = (" and ".join(one.exact) for one in PROTOCOLS[name])
        raise TypeError(f"{name} needs {', or '.join(needed)}")
    return made(**given)
