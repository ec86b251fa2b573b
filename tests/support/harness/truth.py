"""Expected estimates by the protocols' definitions."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

import ldp

METHODS = [
    *("base", "base-pos", "post-pos", "base-cut", "norm", "norm-mul", "norm-cut", "norm-sub"),
    *("mle-apx", "power", "power-ns"),
]
"""The methods in the paper's order."""
WORD = 0xFFFFFFFF

Vector = npt.NDArray[np.float64]
Words = npt.NDArray[Any]
Reports = npt.NDArray[np.void]
"""Structured reports as on the wire."""


def support(stream: ldp.Stream, reports: Reports) -> npt.NDArray[np.int64]:
    """Returns how many reports support each value."""
    document = stream.document()
    d = document["domain_size"]
    if document["protocol"] == "grr":
        return np.array([(reports["index"] == v).sum() for v in range(d)])
    hashed = {"mul32": _mul32, "xxh32": _xxh32}[document["hash"]]
    seeds, g = reports["seed"].astype(np.uint64), document["g"]
    return np.array([(hashed(seeds, v, g) == reports["bucket"]).sum() for v in range(d)])


def _mul32(seeds: Words, v: int, g: int) -> Words:
    def mixed(x: int) -> int:
        x = (x ^ x >> 16) * 0x7FEB352D & WORD
        x = (x ^ x >> 15) * 0x846CA68B & WORD
        return x ^ x >> 16

    e = mixed(v + 0x9E3779B1)
    b = mixed(e + 0x9E3779B1 & WORD)
    c = mixed(b + 0x9E3779B1 & WORD) & 0xCCCCCCCC | 0x11111111
    y = (seeds ^ e) * (0xC2B2AE3D + 0x78DDE6C4 * v & WORD) & WORD
    x = (y ^ y >> 11 ^ b) * c & WORD
    return x * g >> 32


def _xxh32(seeds: Words, v: int, g: int) -> Words:
    def rotated(x: Words, bits: int) -> Words:
        return (x << bits | x >> 32 - bits) & WORD

    text = str(v).encode()
    h = seeds + 0x165667B1 + len(text) & WORD
    while len(text) >= 4:
        h = rotated(h + int.from_bytes(text[:4], "little") * 0xC2B2AE3D & WORD, 17) * 0x27D4EB2F & WORD
        text = text[4:]
    for byte in text:
        h = rotated(h + byte * 0x165667B1 & WORD, 11) * 0x9E3779B1 & WORD
    h = (h ^ h >> 15) * 0x85EBCA77 & WORD
    h = (h ^ h >> 13) * 0xC2B2AE3D & WORD
    return (h ^ h >> 16) % g


def base(stream: ldp.Stream, reports: Reports) -> Vector:
    """Returns the estimate (C/n − q)/(p − q) with p and q from ε in floats."""
    document = stream.document()
    numerator, denominator = map(int, document["epsilon"].split("/"))
    e = math.exp(numerator / denominator)
    k = document["domain_size"] if document["protocol"] == "grr" else document["g"]
    p = e / (e + k - 1)
    q = 1 / (e + k - 1) if document["protocol"] == "grr" else 1 / k
    estimate: Vector = (support(stream, reports) / len(reports) - q) / (p - q)
    return estimate
