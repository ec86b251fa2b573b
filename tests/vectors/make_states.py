"""Make states.json: files of states, and files that a reader has to refuse.

    python make_states.py

It needs only the standard library and shares no code with the project: it is written from docs/reference/state-
files.md.
"""

import hashlib
import json
from pathlib import Path

GRR = {"protocol": "grr", "epsilon": "1/1", "domain_size": 3, "labels": ["rouge", "grün", "青"]}
HADAMARD = {"protocol": "hadamard", "epsilon": "1/2", "domain_size": 3}
PLAIN = {"document": GRR, "log": [], "records": 2, "rejected": {}, "reports": 6, "width": 1, "windows": []}
ONE = {
    "topic": "colours",
    "partition": 0,
    "start": 5,
    "offset": 12,
    "max_timestamp": 1700000000000,
    "most_reports": 100,
}
OTHER = {
    "topic": "colours",
    "partition": 1,
    "start": 0,
    "offset": 4,
    "max_timestamp": None,
    "most_reports": None,
}
HOUR = 3600000


def file(counters, version=1, **more):
    """A file in hexadecimal; a key that is ... is left out."""
    header = {key: value for key, value in {**PLAIN, **more}.items() if value is not ...}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    data = b"LDPSTATE" + bytes([version]) + len(text).to_bytes(4, "little") + text
    data += b"".join(counter.to_bytes(header["width"], "little") for counter in counters)
    return (data + hashlib.sha256(data).digest()).hex()


STATES = [
    ("all time, of no known log", [1, 2, 3], {}),
    (
        "ranges of a log, and rejected records",
        [6, 0, 0],
        {"log": [ONE, OTHER], "rejected": {"empty": 1, "json": 2}},
    ),
    ("two windows that are apart", [0, 6, 0], {"windows": [[0, HOUR], [2 * HOUR, 3 * HOUR]]}),
    ("counters of two bytes", [0, 44, 256], {"reports": 300, "width": 2}),
    ("counters of eight bytes", [0, 0, 1 << 33], {"reports": 1 << 33, "width": 8}),
    ("the messages of hadamard", [3, 0, 4, 1], {"document": HADAMARD, "reports": 8}),
    ("nothing counted, one rejected", [0, 0, 0], {"records": 0, "reports": 0, "rejected": {"version": 1}}),
]
WHOLE = file([1, 2, 3])
REFUSED = [
    ("a newer version", file([1, 2, 3], version=2)),
    ("another magic", "4c4450" + "00" * 60),
    ("truncated", WHOLE[:-2]),
    ("a checksum that is not due", WHOLE[:-2] + ("00" if WHOLE[-2:] != "00" else "01")),
    ("a counter too few", file([1, 5])),
    ("counters that six reports of grr do not have", file([1, 2, 4])),
    ("counters wider than they need be", file([1, 2, 3], width=4)),
    ("a key more", file([1, 2, 3], more=1)),
    ("a key less", file([1, 2, 3], rejected=...)),
    ("more records than reports", file([1, 2, 3], records=7)),
    ("reports of no record", file([1, 2, 3], records=0)),
    ("more records than the log has offsets", file([1, 2, 3], log=[OTHER], rejected={"json": 3})),
    ("ranges out of their order", file([1, 2, 3], log=[OTHER, ONE])),
    ("ranges that touch", file([1, 2, 3], log=[OTHER, {**OTHER, "start": 4, "offset": 9}])),
    ("ranges that overlap", file([1, 2, 3], log=[OTHER, {**OTHER, "start": 3, "offset": 9}])),
    ("windows that touch", file([1, 2, 3], windows=[[0, 5], [5, 9]])),
    ("windows that overlap", file([1, 2, 3], windows=[[0, 5], [4, 9]])),
    ("an epsilon that is not in lowest terms", file([1, 2, 3], document={**GRR, "epsilon": "2/2"})),
    ("a reason that is none", file([1, 2, 3], rejected={"Not so": 1})),
]


def main():
    """Writes the file."""
    made = {
        "version": 1,
        "about": "files of states, and files that are refused; README.md beside this file says more",
        "states": [
            {"what": what, "header": {**PLAIN, **more}, "counters": counters, "hex": file(counters, **more)}
            for what, counters, more in STATES
        ],
        "refused": [{"what": what, "hex": data} for what, data in REFUSED],
    }
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    Path(__file__).with_name("states.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
