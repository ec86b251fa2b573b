"""The Python client with a store per device, for ``ldp audit-client --rounds``; with a fault if one is named.

python -m tests.support.stored_client DOCUMENT FOLDER [FAULT]
"""

import json
import sys
import warnings
from pathlib import Path

from ldp.budget import Spent
from ldp.client import Client

warnings.simplefilter("ignore")
given, folder, fault = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], [*sys.argv, ""][3]
changed = dict(given["privacy"])
if fault == "doubles":
    changed["reports"] *= 2
if fault == "halves":
    changed["reports"] //= 2
if fault == "fresh":
    changed["noise"] = "fresh"
if fault == "memoised":
    changed["noise"] = "memoised"
plain = Client(given)
for line in sys.stdin:
    device, seconds, value = line.rstrip("\n").split(" ", 2)
    path = f"{folder}/{device}"
    if fault == "forgets":
        Path(path).unlink(missing_ok=True)
    if fault == "skews":
        path += f".{int(seconds) // 86_400}"  # a store for each period
    client = Client(given | {"privacy": changed}, store=path, clock=lambda at=seconds: float(at))
    try:
        frame = client.report(value if "labels" in given else int(value))
    except Spent:
        print("spent")
    else:
        print((plain._header + frame[5:]).hex())
