"""Make wire-1/reports, coins.json, documents.json and packs.json: what a client must send, refuse and pack.

    python make_reports.py

It needs only the standard library and shares no code with the project: it is a second client, written from the
definitions, slow and plain. The coins from a seed are for tests only; README.md in this folder defines them.
"""

import base64
import hashlib
import itertools
import json
from decimal import Decimal, localcontext
from functools import cache
from pathlib import Path

W = 1 << 64
LABELS = ["rouge", "grün", "青"]


PRIVACY = {"unit": "device", "reports": 1, "period": "24h", "noise": "fresh", "horizon": "365d"}


def document(protocol, epsilon, d, **more):
    return {"protocol": protocol, "epsilon": epsilon, "domain_size": d, **more}


DOCUMENTS = [
    document("grr", "1/10", 1),
    document("grr", "1/1", 10),
    document("grr", "1/2", 3, labels=LABELS),
    document("grr", "4/1", 300),
    document("grr", "12/1", 100000),
    document("olh", "1/1", 10, g=4, hash="mul32"),
    document("olh", "1/3", 1200, g=2, hash="xxh32"),
    document("olh", "6/1", 100000, g=404, hash="mul32"),
    document("olh", "12/1", 1 << 24, g=65536, hash="xxh32"),
    document("olh", "2/1", 3, g=8, hash="xxh32", labels=LABELS),
    document("oue", "1/1", 10),
    document("oue", "1/10", 16),
    document("oue", "4/1", 100),
    document("oue", "64/1", 3, labels=LABELS),
    document("sue", "1/1", 10),
    document("sue", "1/3", 16),
    document("sue", "4/1", 100),
    document("sue", "5/2", 3, labels=LABELS),
    document("subset", "1/1", 2, k=1),
    document("subset", "1/1", 10, k=2),
    document("subset", "1/2", 5, k=4),
    document("subset", "1/1", 100, k=27),
    document("subset", "5/1", 1000, k=6),
    document("subset", "8/1", 70000, k=23),
    document("subset", "1/1", 3, k=1, labels=LABELS),
    document("hadamard", "1/1", 1),
    document("hadamard", "1/2", 10),
    document("hadamard", "3/1", 255),
    document("hadamard", "1/1", 256),
    document("hadamard", "1/1", 70000),
    document("hadamard", "1/1", 3, labels=LABELS),
    document("pgr", "1/2", 7, prime=2, dimension=3),
    document("pgr", "1/1", 10, prime=3, dimension=3),
    document("pgr", "3/1", 20, prime=19, dimension=2),
    document("pgr", "4/1", 1024, prime=47, dimension=3),
    document("pgr", "1/2", 100000, prime=2, dimension=17),
    document("pgr", "2/1", 3, prime=3, dimension=2, labels=LABELS),
    document("olh", "1/2", 4, g=3, hash="mul32", labels=[*LABELS, "👍🏽"]),
    document("olh", "3/1", 845, g=21, hash="mul32"),
    document("olh", "11/1", 70000, g=59875, hash="mul32"),
    document("grr", "1/1", 4, privacy=PRIVACY),
    document("oue", "2/1", 3, labels=LABELS, privacy=PRIVACY | {"unit": "überall", "noise": "memoised"}),
]


class Coins:
    """Blocks of SHA-256 as one string of bytes, which the draws take from the front."""

    def __init__(self, seed: bytes) -> None:
        self.bytes = (
            byte
            for block in itertools.count()
            for byte in hashlib.sha256(seed + block.to_bytes(4, "little")).digest()
        )

    def number(self, size: int) -> int:
        return int.from_bytes(bytes(itertools.islice(self.bytes, size)), "little")

    def below(self, m: int) -> int:
        return self.number(32) * m >> 256

    def bits(self, n: int) -> int:
        return self.number(-(-n // 8)) % (1 << n)

    def coin(self, a: int, b: int) -> bool:
        return self.below(b) < a

    def respond(self, symbol: int, m: int, n: int) -> int:
        keep, other = self.coin(n - W, n + (m - 1) * W), self.below(m)
        return symbol if keep else other

    def many(self, a: int, b: int, n: int) -> int:
        heads, tied = 0, (1 << n) - 1
        while tied and a:
            a *= 2
            word = self.bits(n)
            if a >= b:
                a -= b
                heads |= tied & ~word
                tied &= word
            else:
                tied &= ~word
        return heads


def exp_below(epsilon: str, half: bool = False) -> int:
    """⌊e^ε·2⁶⁴⌋, or of ε/2: at most 48 digits, of 120 that are computed."""
    numerator, denominator = map(int, epsilon.split("/"))
    with localcontext() as context:
        context.prec = 120
        return int((Decimal(numerator) / (denominator * (1 + half))).exp() * W)


def width(bound: int) -> int:
    return 1 if bound <= 1 << 8 else 2 if bound <= 1 << 16 else 4


def word32(x: int) -> int:
    return x % (1 << 32)


def mul32(seed: int, value: int, g: int) -> int:
    def mix(x):
        x = word32((x ^ x >> 16) * 0x7FEB352D)
        x = word32((x ^ x >> 15) * 0x846CA68B)
        return x ^ x >> 16

    e = mix(word32(value + 0x9E3779B1))
    b = mix(word32(e + 0x9E3779B1))
    c = mix(word32(b + 0x9E3779B1)) & 0xCCCCCCCC | 0x11111111
    x = word32((seed ^ e) * (0xC2B2AE3D + 0x78DDE6C4 * value))
    return word32((x ^ x >> 11 ^ b) * c) * g >> 32


def xxh32(seed: int, value: int, g: int) -> int:
    def rotate(x, by):
        return word32(x << by) | x >> 32 - by

    text = str(value).encode()
    whole = len(text) - len(text) % 4
    h = word32(seed + 374761393 + len(text))
    for at in range(0, whole, 4):
        h = word32(
            rotate(word32(h + int.from_bytes(text[at : at + 4], "little") * 3266489917), 17) * 668265263
        )
    for byte in text[whole:]:
        h = word32(rotate(word32(h + byte * 374761393), 11) * 2654435761)
    h = word32((h ^ h >> 15) * 2246822519)
    h = word32((h ^ h >> 13) * 3266489917)
    return (h ^ h >> 16) % g


HASH = {"mul32": mul32, "xxh32": xxh32}


@cache
def points(q: int, t: int) -> list[tuple[int, ...]]:
    """All vectors of t coordinates whose first that is not 0 is 1; `product` has them in the order of their words."""
    return [v for v in itertools.product(range(q), repeat=t) if next(filter(None, v), 0) == 1]


def orthogonal(a: tuple[int, ...], b: tuple[int, ...], q: int) -> bool:
    return sum(x * y for x, y in zip(a, b, strict=True)) % q == 0


def on_hyperplane(value: int, place: int, q: int, t: int) -> int:
    """The number of the point at a place: the one coordinate to put in is found by trying all."""
    own, rest = points(q, t)[value], points(q, t - 1)[place]
    last = max(i for i in range(t) if own[i])
    (found,) = (
        point for point in ((*rest[:last], x, *rest[last:]) for x in range(q)) if orthogonal(own, point, q)
    )
    return points(q, t).index(found)


def columns(d: int) -> int:
    """Hadamard Response's K."""
    return next(1 << i for i in itertools.count() if 1 << i > d)


def odd(x: int) -> bool:
    return f"{x:b}".count("1") % 2 == 1


def bits_of(members: set[int], d: int) -> bytes:
    return bytes(sum(1 << v % 8 for v in members if v // 8 == i) for i in range(-(-d // 8)))


def perturb(doc: dict, v: int, coins: Coins) -> tuple[list[int] | None, bytes, set[int] | None]:
    """A report's integers, or None if it is a vector; its bytes; its members, if it is a vector."""
    d, n = doc["domain_size"], exp_below(doc["epsilon"])
    match doc["protocol"]:
        case "grr":
            index = coins.respond(v, d, n)
            return [index], index.to_bytes(width(d), "little"), None
        case "olh":
            g, seed = doc["g"], coins.below(1 << 32)
            bucket = coins.respond(HASH[doc["hash"]](seed, v, g), g, n)
            return [seed, bucket], seed.to_bytes(4, "little") + bucket.to_bytes(width(g), "little"), None
        case "hadamard":
            index, own = coins.below(columns(d)), coins.coin(n, n + W)
            if odd(index & (v + 1)) == own:
                index ^= (v + 1) & -(v + 1)
            return [index], index.to_bytes(width(columns(d)), "little"), None
        case "pgr":
            q, t = doc["prime"], doc["dimension"]
            all_points, plane = len(points(q, t)), len(points(q, t - 1))
            near = coins.coin((n - W) * plane, (n - W) * plane + all_points * W)
            place, other = coins.below(plane), coins.below(all_points)
            index = on_hyperplane(v, place, q, t) if near else other
            return [index], index.to_bytes(width(all_points), "little"), None
        case "subset":
            k = doc["k"]
            members = subset(v, d, k, coins.coin(k * n, k * n + (d - k) * W), coins)
            indices = b"".join(member.to_bytes(width(d), "little") for member in sorted(members))
            return None, min(indices, bits_of(members, d), key=len), members
        case "oue" | "sue" as protocol:
            n = exp_below(doc["epsilon"], half=protocol == "sue")
            own = coins.coin(1, 2) if protocol == "oue" else coins.coin(n, n + W)
            others = coins.many(W, n + W, d)
            members = {u for u in range(d) if (own if u == v else others >> u & 1)}
            return None, bits_of(members, d), members
    raise ValueError(doc["protocol"])


def subset(v: int, d: int, k: int, own: bool, coins: Coins) -> set[int]:
    others = [u for u in range(d) if u != v]
    taken = []
    for i in range(d - 1 - k, d - 1):
        x = coins.below(i + 1)
        if i > d - 1 - k or not own:
            taken.append(i if x in taken else x)
    return {others[i] for i in taken} | ({v} if own else set())


def supported(doc: dict, v: int, integers: list[int] | None, members: set[int] | None) -> bool:
    match doc["protocol"]:
        case "grr":
            return integers == [v]
        case "olh":
            seed, bucket = integers
            return HASH[doc["hash"]](seed, v, doc["g"]) == bucket
        case "hadamard":
            return not odd(integers[0] & (v + 1))
        case "pgr":
            numbered = points(doc["prime"], doc["dimension"])
            return orthogonal(numbered[v], numbered[integers[0]], doc["prime"])
    return v in members


def canonical(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def fingerprint(doc: dict) -> bytes:
    if "labels" in doc:
        doc = doc | {"labels": hashlib.sha256(canonical(doc["labels"])).hexdigest()}
    return hashlib.sha256(canonical(doc)).digest()[:4]


def stream(number: int, doc: dict) -> dict:
    d = doc["domain_size"]
    given = [0, d - 1, d // 2, d // 3, d - 1, d // 2]
    asked = sorted({*given, min(1, d - 1), 2 * d // 3})
    cases, support = [], [0] * len(asked)
    for i, v in enumerate(given):
        seed = hashlib.sha256(f"{number}/{i}".encode()).digest()[:16]
        integers, wire, members = perturb(doc, v, Coins(seed))
        supports = [u for u in asked if supported(doc, u, integers, members)]
        support = [count + (u in supports) for u, count in zip(asked, support, strict=True)]
        as_json = base64.b64encode(wire).decode() if integers is None else integers
        cases.append(
            {
                "value": doc["labels"][v] if "labels" in doc and i % 2 else v,
                "seed": seed.hex(),
                "report": wire.hex() if integers is None else integers,
                "frame": (b"\x01" + fingerprint(doc) + wire).hex(),
                "json": as_json[0] if len(as_json) == 1 and integers else as_json,
                "supports": supports,
            }
        )
    name = f"{doc['protocol']}-{d}" + ("-labels" if "labels" in doc else "")
    name += "-privacy" if "privacy" in doc else ""
    head = {"name": name, "document": doc, "fingerprint": fingerprint(doc).hex()}
    return head | {"asked": asked, "support": support, "cases": cases}


def draws() -> dict:
    """A few draws from one seed, in their order."""
    seed = bytes(range(16))
    coins = Coins(seed)
    below = [6, 1 << 32, 1, (1 << 64) + 1]
    bits = [8, 10, 300]
    return {
        "seed": seed.hex(),
        "draws": [{"below": str(m), "is": str(coins.below(m))} for m in below]
        + [{"bits": n, "is": str(coins.bits(n))} for n in bits]
        + [{"below": "1000", "is": str(coins.below(1000))}],
    }


GRR = document("grr", "1/1", 3)
REFUSED = [  # what a document has, and its difference from a valid one
    ("a number where a text is required", {"epsilon": 1.0}),
    ("an epsilon that is not in lowest terms", {"epsilon": "2/2"}),
    ("a leading zero", {"epsilon": "01/2"}),
    ("no denominator", {"epsilon": "1"}),
    ("a decimal", {"epsilon": "0.5"}),
    ("an epsilon of 0", {"epsilon": "0/1"}),
    ("an epsilon above 64", {"epsilon": "65/1"}),
    ("an epsilon whose e^epsilon is 1 at 64 bits", {"epsilon": f"1/{10**30}"}),
    ("an epsilon that only an explicit channel can have", {"epsilon": "infinite"}),
    ("an unknown protocol", {"protocol": "rappor"}),
    ("a protocol in capitals", {"protocol": "GRR"}),
    ("a protocol named like a property of JavaScript's objects", {"protocol": "constructor"}),
    ("an unknown key", {"g": 3}),
    ("a version", {"version": 2}),
    ("no domain", {"domain_size": None}),
    ("a domain as a text", {"domain_size": "3"}),
    ("a domain that is no integer", {"domain_size": 2.5}),
    ("a domain of 0", {"domain_size": 0}),
    ("a domain above 2^24", {"domain_size": (1 << 24) + 1}),
    ("a label twice", {"labels": ["rouge", "rouge", "vert"]}),
    ("an empty label", {"labels": ["rouge", "", "vert"]}),
    ("a number as a label", {"labels": ["rouge", 7, "vert"]}),
    ("half of a surrogate pair", {"labels": ["rouge", "\ud800", "vert"]}),
    ("a control character", {"labels": ["rouge", "a\0", "vert"]}),
    ("too few labels", {"labels": ["rouge", "vert"]}),
    ("labels as a text", {"labels": "abc"}),
    ("olh without its parameters", {"protocol": "olh"}),
    ("a g of 1", {"protocol": "olh", "g": 1, "hash": "mul32"}),
    ("a g above 2^16", {"protocol": "olh", "g": 65537, "hash": "mul32"}),
    ("an unknown hash", {"protocol": "olh", "g": 4, "hash": "md5"}),
    ("subsets of the whole domain", {"protocol": "subset", "k": 3}),
    ("empty subsets", {"protocol": "subset", "k": 0}),
    ("a composite number as the prime", {"protocol": "pgr", "prime": 4, "dimension": 2}),
    ("fewer points than values", {"protocol": "pgr", "domain_size": 8, "prime": 2, "dimension": 3}),
    ("more points than 2^26", {"protocol": "pgr", "prime": 67108859, "dimension": 3}),
    ("a channel without its probability", {"protocol": "response", "epsilon": None}),
    ("an epsilon beside probabilities", {"protocol": "response", "p": "3/4"}),
    ("a probability above 1", {"protocol": "response", "epsilon": None, "p": "5/4"}),
    ("a response that tells nothing", {"protocol": "response", "epsilon": None, "p": "1/3"}),
    ("a bit that tells nothing", {"protocol": "unary", "epsilon": None, "p": "1/4", "q": "1/4"}),
    ("a declaration that is a text", {"privacy": "fresh"}),
    ("a declaration that is a list", {"privacy": [PRIVACY]}),
    ("a declaration without a unit", {"privacy": {key: PRIVACY[key] for key in PRIVACY if key != "unit"}}),
    ("a declaration with an unknown key", {"privacy": PRIVACY | {"epsilon": "1/1"}}),
    ("a unit that is empty", {"privacy": PRIVACY | {"unit": ""}}),
    ("a unit with a control character", {"privacy": PRIVACY | {"unit": "a\n"}}),
    ("a unit that is no text", {"privacy": PRIVACY | {"unit": 7}}),
    ("no report in a period", {"privacy": PRIVACY | {"reports": 0}}),
    ("more than 10^6 reports in a period", {"privacy": PRIVACY | {"reports": 10**6 + 1}}),
    ("half a report in a period", {"privacy": PRIVACY | {"reports": 0.5}}),
    ("a period without its unit", {"privacy": PRIVACY | {"period": "24"}}),
    ("a period of 0", {"privacy": PRIVACY | {"period": "0h"}}),
    ("a period before a line feed", {"privacy": PRIVACY | {"period": "24h\n"}}),
    ("a period as a number", {"privacy": PRIVACY | {"period": 24}}),
    ("a horizon of a million days", {"privacy": PRIVACY | {"horizon": "1000000d"}}),
    ("a horizon below the period", {"privacy": PRIVACY | {"horizon": "23h"}}),
    ("an unknown noise", {"privacy": PRIVACY | {"noise": "none"}}),
    ("a noise that is a list", {"privacy": PRIVACY | {"noise": ["fresh"]}}),
]
PACKS = [  # document, number of reports, most_reports: how many reports each frame gets
    (GRR, 10, 4, [4, 4, 2]),
    (GRR, 3, 3, [3]),
    (GRR, 0, 3, []),
    (GRR, 1_000_000, 1 << 30, [999_995, 5]),  # a frame has at most 10^6 bytes, 5 of them before the reports
    (document("oue", "1/1", 80_000), 250, 1 << 30, [99, 99, 52]),
    (document("oue", "1/1", 80_000), 250, 98, [98, 98, 54]),
    (document("oue", "1/1", 9_000_000), 2, 1 << 30, [1, 1]),  # a longer report has a frame of its own
]


def refused() -> list[dict]:
    """Documents that a client must refuse, each with what it has; null leaves a key out."""
    changed = [(what, GRR | change) for what, change in REFUSED]
    return [
        {"what": what, "document": {key: value for key, value in doc.items() if value is not None}}
        for what, doc in changed
    ]


def packs() -> list[dict]:
    """The number of reports in each frame that a client packs, one report after the other."""
    keys = ("document", "reports", "most_reports", "packed")
    return [dict(zip(keys, case, strict=True)) for case in PACKS]


def listing(name: str, cases: list[dict]) -> str:
    """A file with one list, a line for each case."""
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    return f'{{"version": 1,\n "{name}": [\n  {lines}\n ]}}\n'


def text(made: dict) -> str:
    """A stream's file: a line for each case."""
    cases = ",\n  ".join(line(case) for case in made.pop("cases"))
    head = ",\n ".join(f"{line(key)}: {line(value)}" for key, value in made.items())
    return f'{{"version": 1,\n {head},\n "cases": [\n  {cases}\n ]}}\n'


def line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def files() -> dict[str, str]:
    """Every file by its name."""
    made = [stream(number, doc) for number, doc in enumerate(DOCUMENTS)]
    coins = draws()
    drawn = ",\n  ".join(map(line, coins["draws"]))
    head = f'{{"version": 1,\n "seed": {line(coins["seed"])},\n "draws": [\n  {drawn}\n ]}}\n'
    listed = {"documents.json": listing("refused", refused()), "packs.json": listing("packs", packs())}
    return {"coins.json": head} | listed | {f"reports/{one['name']}.json": text(one) for one in made}


if __name__ == "__main__":
    for name, content in files().items():
        (Path(__file__).parent / "wire-1" / name).write_text(content, encoding="utf-8")
