"""Clients with one fault each, and the findings expected of a verdict."""

import sys
from pathlib import Path

import ldp

MUTANT = str(Path(__file__).parent / "mutant.py")

FAULTS = [
    (ldp.GRR("1", 5), "off by one", "value 4, "),
    (ldp.OLH("1", 30), "next bucket", "reports that support it"),
    (ldp.HadamardResponse("1", 20), "rows from zero", "reports that support it"),
    (ldp.GRR("1", 5), "biased", "client spends|reports that support it"),
    (ldp.GRR("1", 9), "float threshold", "reports that support"),
    (ldp.OLH("1", 30), "predictable", "repeated in a second run"),
    (ldp.OUE("1", 20), "predictable", "repeated in a second run"),
    (ldp.OLH("1", 30), "seed by value", "reports equal to the previous one|a second run"),
    (ldp.OLH("1", 30), "coin of the seed", "buckets by four bits"),
    (ldp.SUE("1/2", 20), "whole budget a bit", "client spends ε ≥ 0."),
    (ldp.SUE("1", 20), "other epsilon", "client spends|reports that support"),
    (ldp.GRR("1", 5), "slow by value", "time: a report of value 0 takes"),
]
"""Protocol, fault, and alternatives (|), one of them in the findings."""
REJECTED = [
    (ldp.SubsetSelection("3", 300), "draw order", "would reject frames: line"),
    (ldp.GRR("1", 300), "big endian", "would reject frames: line"),
    (ldp.GRR("1", 5), "old document", "(fingerprint)"),
    (ldp.GRR("1", 5), "silent", "lines for"),
]
"""The same for clients whose frames a worker rejects."""


def reports(fault: str) -> int:
    """Returns how many reports show a fault; a small deviation takes more."""
    return {"float threshold": 150_000, "other epsilon": 30_000, "slow by value": 30_000}.get(fault, 15_000)


def command(fault: str) -> list[str]:
    """Returns the command of a client with the fault."""
    return [sys.executable, MUTANT, fault, "{}"]
