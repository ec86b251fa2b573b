"""Unary encoding of another package as a command: ``python foreign.py document.json``, in an environment that has it.

A document has its ε as a ratio, which the package takes as a float.
"""

import json
import sys
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

import numpy as np
from pure_ldp.frequency_oracles.unary_encoding import UEClient

DOCUMENT = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
CANONICAL = json.dumps(DOCUMENT, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
HEADER = "01" + sha256(CANONICAL.encode()).hexdigest()[:8]
CLIENT = UEClient(
    float(Fraction(DOCUMENT["epsilon"])),
    DOCUMENT["domain_size"],
    use_oue=DOCUMENT["protocol"] == "oue",
    index_mapper=lambda index: index,
)

for line in sys.stdin:
    bits = CLIENT.privatise(int(line))
    print(HEADER + np.packbits(np.asarray(bits, np.uint8), bitorder="little").tobytes().hex())
