"""Make wire-1/channels: records of streams whose probabilities are given, as `make_frames` has them of others.

    python make_channels.py

Like make_frames.py in the same folder, it shares no code with the project.
"""

from pathlib import Path

import make_frames
from make_frames import Stream

RESPONSE = Stream({"protocol": "response", "p": "3/4", "domain_size": 5}, "<B", [0, 3, 4])
UNARY = Stream(
    {"protocol": "unary", "p": "3/4", "q": "1/4", "domain_size": 12}, "<BB", ["1104", "ff0f", "0000"]
)
RAPPOR = Stream(
    {"protocol": "unary", "f": "1/2", "p": "3/4", "q": "1/2", "domain_size": 12}, "<BB", ["1104", "ff0f"]
)
TOLD = Stream(
    {"protocol": "unary", "p": "1/1", "q": "1/4", "domain_size": 8, "epsilon": "infinite"}, "<B", ["01", "ff"]
)
BEYOND = {
    "response": (RESPONSE, 5, "range"),
    "unary": (UNARY, "0010", "range"),
    "rappor": (RAPPOR, "ff1f", "range"),
    "told": (TOLD, "00", "ones"),
}


def records(name):
    stream, wrong, reason = BEYOND[name]
    one, several = stream.reports[0], stream.reports
    yield "one report", stream.frame(one), [one]
    yield "several reports", stream.frame(*several), several
    yield "JSON, several reports", stream.text(*several), several
    yield f"a report that is {wrong} after a good one", stream.frame(one, wrong), reason
    yield f"JSON, {wrong}", stream.text(one, wrong), reason
    yield "another fingerprint", stream.frame(one, mark=bytes(4)), "fingerprint"


def files():
    """Every file by its name."""
    return make_frames.files(BEYOND, records)


if __name__ == "__main__":
    for name, content in files().items():
        (Path(__file__).parent / "wire-1" / "channels" / name).write_text(content, encoding="utf-8")
