"""The project's client with coins from seeds, as a command: ``python scripted.py document.json``, for ``--vectors``.

It reads ``SEED VALUE`` from each line. A second argument adds a fault: the bytes of a draw are big-endian.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from ldp import sampling
from ldp.client import Client

ORDER = "big" if len(sys.argv) > 2 else "little"


class Coins:
    """Replaces `secrets` by the coins that tests/vectors/README.md defines."""

    def __init__(self, seed: str) -> None:
        self._seed, self._block, self._ready = bytes.fromhex(seed), 0, b""

    def _take(self, size: int) -> int:
        while len(self._ready) < size:
            self._ready += sha256(self._seed + self._block.to_bytes(4, "little")).digest()
            self._block += 1
        taken, self._ready = self._ready[:size], self._ready[size:]
        return int.from_bytes(taken, ORDER)  # type: ignore[arg-type]

    def randbelow(self, m: int) -> int:
        return self._take(32) * m >> 256

    def randbits(self, n: int) -> int:
        return self._take((n + 7) // 8) & (1 << n) - 1


DOCUMENT = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
CLIENT = Client(DOCUMENT)
for line in sys.stdin:
    seed, value = line.rstrip("\n").split(" ", 1)
    sampling.secrets = Coins(seed)  # type: ignore[attr-defined]
    print(CLIENT.report(value if "labels" in DOCUMENT else int(value)).hex())
