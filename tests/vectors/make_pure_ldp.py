"""Make pure_ldp.json: OLH reports of the package pure-ldp, its server's counts, and some xxHash32 values.

Run it in an environment apart from the project's own; these packages are not among its dependencies:

    python -m pip install pure-ldp==1.2.0 scikit-learn statsmodels bitarray bitstring "xxhash<4"
    python make_pure_ldp.py

pure-ldp draws 63-bit seeds and hashes with them; xxHash32 takes them modulo 2^32, as the file holds them.
"""

import json
import random
from pathlib import Path

import numpy as np
import xxhash
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer

CASES = [(epsilon, d, 500) for epsilon in ("0.5", "1", "2.5", "4") for d in (2, 100, 845, 1024)]
CASES.append(("1", 12000, 40))  # values of five digits


def case(epsilon: str, d: int, n: int) -> dict:
    """Reports of n users and the server's counts before any estimation."""
    client = LHClient(float(epsilon), d, use_olh=True, index_mapper=int)
    server = LHServer(float(epsilon), d, use_olh=True, index_mapper=int)
    seeds, buckets = [], []
    for value in np.random.zipf(1.5, n) % d:
        bucket, seed = client.privatise(int(value))
        server.aggregate((bucket, seed))
        seeds.append(seed % 2**32)
        buckets.append(int(bucket))
    counts = [int(count) for count in server.aggregated_data]
    return {"epsilon": epsilon, "d": d, "g": client.g, "seeds": seeds, "buckets": buckets, "counts": counts}


def hashes() -> list[list[int]]:
    """[seed, value, xxHash32 of the value's decimal string] for values of one to eight digits."""
    rows = []
    for digits in range(1, 9):
        for _ in range(8):
            seed = random.getrandbits(32)
            value = random.randrange(10 ** (digits - 1) if digits > 1 else 0, min(10**digits, 2**24))
            rows.append([seed, value, xxhash.xxh32(str(value), seed=seed).intdigest()])
    return rows


def main() -> None:
    """Write the file next to this script."""
    random.seed(20200616)
    np.random.seed(20200616)
    document = {
        "made_with": {"pure-ldp": "1.2.0", "xxhash": xxhash.VERSION},
        "hashes": hashes(),
        "cases": [case(*parameters) for parameters in CASES],
    }
    Path(__file__).with_name("pure_ldp.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
