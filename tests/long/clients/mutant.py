"""Clients with one fault each: ``python mutant.py FAULT document.json``, values on stdin, frames on stdout.

Each is the project's client with one change; `honest` has none.
"""

import json
import random
import sys
import time
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from ldp import sampling, wire
from ldp.client import Client

FAULT = sys.argv[1]
DOCUMENT = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
CLIENT = Client(DOCUMENT)
ORACLE, HEADER = CLIENT._oracle, CLIENT._header
D = ORACLE.domain_size


class Coins:
    """Replaces `secrets` by a seeded generator."""

    def __init__(self, seed: object) -> None:
        self._generator = random.Random(str(seed))

    def randbelow(self, bound: int) -> int:
        return self._generator.randrange(bound)

    def randbits(self, n: int) -> int:
        return self._generator.getrandbits(n)


def frame(integers: tuple[int, ...]) -> bytes:
    return HEADER + ORACLE.pack(integers)


def report(value: int, i: int) -> bytes:
    match FAULT:
        case "off by one":  # only for the last value
            return CLIENT.report(value - (value == D - 1))
        case "next bucket":  # OLH: the hash of another value
            return CLIENT.report((value + 1) % D)
        case "rows from zero":  # Hadamard: row v and not v + 1
            row, column = value, sampling.integer(ORACLE.state_size)
            odd, own = (column & row).bit_count() % 2, sampling.coin(ORACLE.p)
            return frame((column ^ (row & -row) * (odd == own),))
        case "biased":  # one value in ten is sent unperturbed
            return CLIENT.report(value) if sampling.integer(10) else frame((value,))
        case "float threshold":  # rounded to four bits, as a cheap generator would have it
            keep = sampling.integer(16) < round(16 * float((ORACLE.E - 1) / (ORACLE.E + D - 1)))
            return frame((value if keep else sampling.integer(D),))
        case "predictable":  # the same coins in each run
            sampling.secrets = Coins(i)  # type: ignore[attr-defined]
        case "seed by value":  # a seed that stays with the value: memoised
            sampling.secrets = Coins(value)  # type: ignore[attr-defined]
        case "coin of the seed":  # OLH: the seed determines the coin
            seed = sampling.integer(1 << 32)
            coin = int.from_bytes(sha256(seed.to_bytes(4, "little")).digest()[:4], "little")
            bucket = ORACLE._bucket(seed, value)
            keep = coin < (1 << 32) * float((ORACLE.E - 1) / (ORACLE.E + ORACLE.g - 1))
            return frame((seed, bucket if keep else seed % ORACLE.g))
        case "draw order":  # Subset: the first one drawn comes first
            members = list(ORACLE.perturb_one(value))
            random.shuffle(members)
            return frame(tuple(members))
        case "whole budget a bit":  # unary: each bit spends ε, so that two of them spend 2ε
            p = float(ORACLE.E / (ORACLE.E + 1))
            bits = [(random.random() < p) == (v == value) for v in range(D)]
            packed = sum(bit << v for v, bit in enumerate(bits))
            return HEADER + packed.to_bytes(ORACLE.report_bytes, "little")
        case "other epsilon":  # bytes of the frames, not the fingerprint
            other = type(ORACLE)(ORACLE.epsilon * Fraction(13, 10), D)
            return HEADER + other.pack(other.perturb_one(value))
        case "big endian":
            body = CLIENT.report(value)[wire.HEADER_BYTES :]
            return HEADER + body[::-1]
        case "old document":
            return HEADER[:1] + bytes(4) + CLIENT.report(value)[wire.HEADER_BYTES :]
        case "silent":  # one value is never reported
            return b"" if value == D - 1 else CLIENT.report(value)
        case "slow by value":
            time.sleep(0.002 * (value == 0))
        case "honest":
            pass
        case _:
            raise SystemExit(f"no fault {FAULT!r}")
    return CLIENT.report(value)


for i, line in enumerate(sys.stdin):
    made = report(int(line), i)
    if made:
        print(made.hex(), flush=FAULT in ("honest", "slow by value"))
