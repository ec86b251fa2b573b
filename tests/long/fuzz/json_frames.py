"""Generates sound and broken JSON frames for all oracles.

`ldp.frames.decode` must agree with `tests.support.reading`, which reads one record at a time with Python's parser.
"""

import base64
import random
from collections import Counter
from functools import cache

import numpy as np

import ldp
from ldp import frames
from tests.support.reading import read_one, rows_of

BATCH = 500

ORACLES = (
    ldp.GRR("1", 845), ldp.GRR("1", 10), ldp.GRR("1", 70_000), ldp.OLH("1", 845, g=4),
    ldp.OLH("6", 100, g=404, hash="xxh32"), ldp.OLH("1", 100, g=256), ldp.OUE("1", 100), ldp.OUE("1/2", 10),
    ldp.SUE("1", 64), ldp.oracle("subset", "3", 100, k=5), ldp.oracle("subset", "5", 1000, k=7),
    ldp.oracle("subset", "1", 12, k=3), ldp.oracle("hadamard", "1", 255), ldp.oracle("pgr", "1", 300),
    ldp.Response("3/4", 10), ldp.Unary("3/4", "1/4", 20),
)  # fmt: skip
STREAMS = [ldp.Stream(f"fuzz-{i}", oracle) for i, oracle in enumerate(ORACLES)]

SPACES = ["", " ", "\n", "\t\r\n ", "  "]
NO_SPACES = ["\x0b", "\x0c", "\xa0", "\ufeff", "\x00", "\x1f", "/**/"]
SHORT = {
    '"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
}  # fmt: skip
STRANGE = [
    "é", "\u07ff", "\u0800", "\uffff", "😀", "\U0010ffff", "\x7f", "/", "\u2028", " ", "A", "=", "\n", '"', "\\",
]  # fmt: skip
NO_STRINGS = [
    "\\x41", "\\u12g4", "\\u123", "\\U00000041", "\\'", "\\ud83d\\u12", "\x00", "\n", "\x1f", "\\", "\\\x80",
]  # fmt: skip
SURROGATES = ["\\ud83d", "\\ude00", "\\ud83d\\ude00", "\\uD83D\\u0041", "\\udfff\\ud800"]
NO_UTF8 = [
    b"\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80", b"\x80",
    b"\xc3", b"\xe2\x82", b"\xf8\x88\x80\x80\x80", b"\xf0\x9f\x98", b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf",
]  # fmt: skip
BASE64 = [
    f'"{base64.b64encode(bytes(size)).decode()}"' for size in (1, 2, 3, 4, 5, 6)
]  # as long as reports of integers
NUMBERS = [
    "-1", "-0", "00", "01", "1.0", "1e3", "2E+2", "1e", "1.", ".5", "-", "+1", "--1", "-01", "0x1", "1_0", "1 0",
    "4294967295", "4294967296", "18446744073709551616", "1099511627776", "9" * 25, "-" + "9" * 30, "1" + "0" * 400,
]  # fmt: skip
OTHERS = [
    "null", "true", "false", "NaN", "Infinity", "-Infinity", "{}", "[]", '""', '"AAAA"', "[[]]", "[[1]]", "[1]",
    "[1,2]", "[1,2,3]", '["1"]', "[null]", "[1.0,0]", '{"a":1}', "tru", "nul", "", "]", "}", ",", ":", "\u0661",
    "'1'",
]  # fmt: skip
BYTES = [
    b"[", b"]", b"{", b"}", b",", b":", b'"', b"\\", b"0", b"1", b"-", b".", b"e", b" ", b"\n", b"\x00", b"\xff",
    b"=", b"A", b"/", b"u", b"\\u0031", b"[[", b"]]", b"reports", b"\xc3\xa9", b"\x80",
]  # fmt: skip


def fuzz(texts: int, seed: int) -> Counter[str]:
    """Compares both readings of texts; counts the verdicts."""
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    while found.total() < texts:
        stream = chance.choice(STREAMS)
        most = chance.choice([None, 1, 3])
        made: list[bytes] = []
        while len(made) < min(BATCH, texts - found.total()):
            made.append(frame(chance, stream) if odd(chance, 0.1) else text(chance, stream))
            if odd(chance, 0.2):
                made[-1] = damaged(chance, made)
        found.update(compare(stream, made, most, chance))
    return found


def compare(stream: ldp.Stream, records: list[bytes], most: int | None, chance: random.Random) -> list[str]:
    """Decodes records at once and one by one; returns the verdicts."""
    buffer, begins, ends = bytearray(), [], []
    for record in records:
        buffer += chance.choice([b"", b"", b"]}", b'"', b"0" * 9, b"\xff"])
        begins.append(len(buffer))
        buffer += record
        ends.append(len(buffer))
    buffer += chance.choice([b"", b"", b"0]}", b"\x00" * 9])
    decoded = frames.decode(stream, buffer, np.array(begins), np.array(ends), most_reports=most)
    rows, first, verdicts = rows_of(decoded.reports), 0, []
    for i, record in enumerate(records):
        expected = read_one(stream, record, most)
        count = int(decoded.counts[i])
        answer = decoded.reasons.get(i) if decoded.verdicts[i] else rows[first : first + count]
        assert answer == expected, f"{stream.oracle} at most {most}: {record!r} is {expected}, not {answer}"
        first += count
        verdicts.append(str(answer) if decoded.verdicts[i] else "accepted")
    assert first == len(rows), "reports of no record"
    return verdicts


def text(chance: random.Random, stream: ldp.Stream) -> bytes:
    """Returns a JSON frame; each part of it is wrong at times."""
    mark = stream.fingerprint.hex()
    if odd(chance, 0.1):
        mark = chance.choice(
            [mark.upper(), mark[:7], mark + "0", "00000000", "deadbeef", "0000000g", "", "é" * 8]
        )
    value = string(chance, mark) if not odd(chance, 0.03) else other(chance)
    members = [(string(chance, "fingerprint"), value), (string(chance, "reports"), items(chance, stream))]
    if odd(chance, 0.05):
        members.append((string(chance, "segment"), string(chance, chance.choice(["DE", "US:4.3", "", "é"]))))
    if odd(chance, 0.2):
        members.reverse()
    if odd(chance, 0.06):
        extra = string(
            chance, chance.choice(["user", "reports", "fingerprint", "Reports", "report", "reports\x00", ""])
        )
        members.insert(chance.randint(0, 2), (extra, chance.choice([value, "[]", other(chance)])))
    if odd(chance, 0.03):
        members.pop(chance.randint(0, len(members) - 1))
    colon = [
        space(chance) + (":" if not odd(chance, 0.01) else chance.choice(["", "::", ",", "="]))
        for _ in members
    ]
    pairs = [key + mark + space(chance) + value for (key, value), mark in zip(members, colon, strict=True)]
    whole = "{" + listed(chance, pairs) + "}" + space(chance)
    if odd(chance, 0.02):
        whole += chance.choice(["}", "]", "0", "{}", "\x00", whole, "null", "\ufeff", "//"])
    made = whole.encode("utf-8", "surrogatepass")
    if odd(chance, 0.02):
        at = chance.randint(1, len(made))
        made = made[:at] + chance.choice(NO_UTF8) + made[at:]
    return made


def items(chance: random.Random, stream: ldp.Stream) -> str:
    """The list of reports, as text."""
    if odd(chance, 0.03):
        return other(chance)
    made = [item(chance, stream) for _ in range(chance.choice([0, 1, 1, 1, 1, 1, 2, 3, 4]))]
    return "[" + listed(chance, made) + "]"


def item(chance: random.Random, stream: ldp.Stream) -> str:
    """A report, as text."""
    if odd(chance, 0.04):
        return other(chance)
    good = chance.choice(reports(stream))
    if isinstance(good, bytes):
        return string(chance, _base64(chance, good))
    numbers = [str(number) if not odd(chance, 0.05) else chance.choice(NUMBERS) for number in good]
    bounds = [*stream.oracle.fields.values()]
    if odd(chance, 0.05):
        numbers[-1] = str(bounds[-1] + chance.choice([-1, 0, 1]))
    return numbers[0] if len(numbers) == 1 else "[" + listed(chance, numbers) + "]"


@cache
def reports(stream: ldp.Stream) -> list[bytes] | list[tuple[int, ...]]:
    """Some sound reports, and where they are bits some that are not."""
    rng = np.random.default_rng(1)
    made = rows_of(stream.oracle.perturb(rng.integers(stream.oracle.domain_size, size=40), rng=rng))
    if stream.oracle.length is not None:
        made += [
            bytes(stream.oracle.report_bytes),
            b"\xff" * stream.oracle.report_bytes,
            rng.bytes(stream.oracle.report_bytes),
        ]
    return made


def _base64(chance: random.Random, report: bytes) -> str:
    letters = base64.b64encode(report).decode()
    if odd(chance, 0.15):
        at = chance.randint(0, len(letters))
        core = letters.rstrip("=")
        letters = chance.choice(
            [
                core,
                letters + "=",
                letters + "AAAA",
                letters[:-4],
                letters[:at] + " " + letters[at:],
                letters[:at] + "é" + letters[at:],
                core[:-1] + chance.choice("ABCDEFGHQRgw/+") + letters[len(core) :],
                letters.replace("A", "-", 1),
                letters[:-1] + "A",
                letters[:at] + "=" + letters[at:],
                letters[:at] + letters[at + 1 :],
                letters[at:] + letters[:at],
                "",
                "=" * len(letters),
            ]
        )
    return letters


def string(chance: random.Random, content: str) -> str:
    """Returns a JSON string with escapes and rare errors."""
    escaped = chance.random() if odd(chance, 0.15) else 0.0
    made = [_escaped(chance, letter) if chance.random() < escaped else letter for letter in content]
    if odd(chance, 0.03):
        made.insert(chance.randint(0, len(made)), chance.choice(STRANGE + SURROGATES + NO_STRINGS))
    return '"' + "".join(made) + ('"' if not odd(chance, 0.005) else "")


def _escaped(chance: random.Random, letter: str) -> str:
    code = f"{ord(letter):04x}"
    return chance.choice([SHORT.get(letter, letter), "\\u" + code, "\\u" + code.upper()])


def other(chance: random.Random) -> str:
    """Values that are rarely or never reports."""
    depth = chance.choice([1, 2, 60, 1500]) if odd(chance, 0.05) else 0
    return "[" * depth + chance.choice(chance.choice([OTHERS, NUMBERS, BASE64])) + "]" * depth


def listed(chance: random.Random, parts: list[str]) -> str:
    """Parts with commas between."""
    made = space(chance)
    for i, part in enumerate(parts):
        comma = "," if i else ""
        if odd(chance, 0.01):
            comma = chance.choice(["", ",,", ";", ",", ":"])
        made += comma + space(chance) + part + space(chance)
    return made + ("," if odd(chance, 0.01) else "")


def space(chance: random.Random) -> str:
    """White space, most often none."""
    if not odd(chance, 0.1):
        return ""
    return chance.choice(SPACES if not odd(chance, 0.02) else NO_SPACES)


def frame(chance: random.Random, stream: ldp.Stream) -> bytes:
    """A binary frame, sound or not."""
    rng = np.random.default_rng(chance.getrandbits(32))
    body = rng.bytes(stream.oracle.report_bytes * chance.choice([0, 1, 1, 2, 3, 4]))
    if not odd(chance, 0.3):
        values = rng.integers(stream.oracle.domain_size, size=chance.choice([1, 1, 2, 3, 4]))
        body = stream.oracle.perturb(values, rng=rng).tobytes()
    return b"\x01" + stream.fingerprint + body


def damaged(chance: random.Random, pool: list[bytes]) -> bytes:
    """Returns the newest record with bytes changed, inserted, cut or doubled."""
    made = bytearray(pool[-1])
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randint(0, len(made))
        to = min(len(made), at + chance.choice([0, 1, 1, 2, 8]))
        match chance.randint(0, 5):
            case 0:
                made[at:to] = bytes([chance.randrange(256)])
            case 1:
                made[at:to] = chance.choice(BYTES)
            case 2:
                made[at:at] = chance.choice(BYTES)
            case 3:
                del made[at:to]
            case 4:
                made[at:at] = made[at:to]
            case 5:
                other_one = chance.choice(pool)
                start = chance.randint(0, len(other_one))
                made[at:] = (
                    other_one[start:] if odd(chance, 0.5) else other_one[start : start + 5] + made[to:]
                )
    return bytes(made[:4000]) if not odd(chance, 0.005) else b""


def odd(chance: random.Random, share: float) -> bool:
    return chance.random() < share
