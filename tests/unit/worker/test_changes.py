"""The verdicts of `check` on changed documents and segments, as a table."""

from dataclasses import replace

import pytest

import ldp
from ldp.privacy.declaration import Declaration
from worker.check.changes import Listed, Verdict, changes
from worker.counting.rules import Names, RequestedRule, Status
from worker.counting.windows import Windowing

SAFE, WARNING, NEW, IMPOSSIBLE = Verdict.SAFE, Verdict.WARNING, Verdict.NEW_STREAM, Verdict.IMPOSSIBLE
ABC = ["a", "b", "c"]


def doc(oracle=None, labels=ABC):
    return ldp.Stream("s", oracle or ldp.OUE("1", domain_size=len(labels)), labels)


def of(*labels):
    return doc(labels=list(labels))


BASE = doc()
HALF, TWO = doc(ldp.OUE("1/2", 3)), doc(ldp.OUE("2", 3))
OLH, BLAKE = doc(ldp.OLH("1", 3)), doc(ldp.OLH("1", 3, hash="xxh32"))
COUNTRY, APP = (replace(BASE, segment=segment) for segment in ("country", "country:app"))
GRR, GRR30 = doc(ldp.GRR("1", 3)), doc(ldp.GRR("1", 30), [*ABC, *map(str, range(27))])
RATE, RATES = (doc(ldp.Response(p=p, domain_size=3)) for p in ("3/4", "4/5"))
BITS, BITS2 = (ldp.Stream("s", ldp.OUE(epsilon, 3)) for epsilon in ("1", "2"))
MANY = [doc(ldp.OUE(f"{i}/7", 3)) for i in range(8, 26)]
NAMES = [f"S{i}" for i in range(300)]


def names(live=(), retired=(), segments=(), retired_segments=(), revision=0):
    fleet = ldp.Fleet((*live, *retired), frozenset(each.fingerprint for each in retired))
    declared = {name: Status(revision) for name in segments}
    declared |= {name: Status(revision, True) for name in retired_segments}
    return Listed.of(fleet, RequestedRule(revision, segments=declared).names(fleet))


def without_labels(found):
    return Listed(found.documents, found.names)


def id_of(stream):
    return f"document {stream.fingerprint.hex()}"


ADDED = "added"
TABLE = [
    # nothing changes, or nothing that is recorded
    ("nothing recorded", Listed({}, Names()), names([BASE]), []),
    ("the same document, other queries or another file", names([BASE]), names([BASE]), []),
    ("another order in documents", names([BASE, OLH]), names([OLH, BASE]), []),
    ("a higher revision alone", names([BASE]), names([BASE], revision=4), []),
    ("retired again", names([BASE], [OLH]), names([BASE], [OLH], revision=2), []),
    # documents added while one is live
    ("larger ε", names([BASE]), names([TWO, BASE]), [(SAFE, id_of(TWO), 'added; epsilon: "1" → "2"')]),
    (
        "smaller ε",
        names([BASE]),
        names([HALF, BASE]),
        [(WARNING, id_of(HALF), "weaker: a report has 4.3 times the variance of one of")],
    ),
    (
        "protocol",
        names([GRR]),
        names([BASE, GRR]),
        [(WARNING, id_of(BASE), 'protocol: "grr" → "oue"; weaker')],
    ),
    ("stronger protocol", names([BASE]), names([GRR, BASE]), [(SAFE, id_of(GRR), 'protocol: "oue" → "grr"')]),
    ("hash", names([OLH]), names([BLAKE, OLH]), [(SAFE, id_of(BLAKE), 'added; hash: "mul32" → "xxh32"')]),
    ("rate", names([RATE]), names([RATES, RATE]), [(SAFE, id_of(RATES), 'added; p: "3/4" → "4/5"')]),
    (
        "label added",
        names([BASE]),
        names([of("a", "b", "c", "d"), BASE]),
        [
            (
                WARNING,
                "document",
                "added; domain_size: 3 → 4; labels added: d; a label that was part of another label",
            )
        ],
    ),
    (
        "label removed",
        names([BASE]),
        names([of("a", "b"), BASE]),
        [(SAFE, "document", "added; domain_size: 3 → 2; labels removed: c")],
    ),
    (
        "labels reordered",
        names([BASE]),
        names([of("c", "a", "b"), BASE]),
        [(SAFE, "document", "labels in another order")],
    ),
    (
        "label renamed",
        names([BASE]),
        names([of("a", "b", "C"), BASE]),
        [(WARNING, "document", "labels added: C; labels removed: c; a renamed label has two histories")],
    ),
    (
        "label that an older document has",
        names([BASE, of("a", "d")]),
        names([of("a", "b", "d"), BASE, of("a", "d")]),
        [(SAFE, "document", "added; labels added: d; labels removed: c")],
    ),
    (
        "many labels",
        names([BASE]),
        names([GRR30, BASE]),
        [(WARNING, "document", "labels added: 0, 1, 2, 3, 4, 5, 6, 7, 19 more")],
    ),
    (
        "weaker by a larger domain of grr",
        names([GRR]),
        names([GRR30, GRR]),
        [(WARNING, id_of(GRR30), "weaker: a report has")],
    ),
    (
        "a declaration",
        names([BASE]),
        names([ldp.Stream("s", BASE.oracle, ABC, Declaration("device", 1, "24h", "fresh", "365d")), BASE]),
        [(SAFE, "document", "added; privacy: none → ")],
    ),
    (
        "unlabelled",
        names([BITS]),
        names([BITS2, BITS]),
        [(WARNING, id_of(BITS2), "values are joined by number")],
    ),
    (
        "two at once, the second through the first",
        names([BASE]),
        names([of("d", "e"), of("c", "d"), BASE]),
        [(WARNING, "document", "labels added: d"), (WARNING, "document", "labels added: e")],
    ),
    (
        "added and the former retired at once",
        names([BASE]),
        names([TWO], [BASE]),
        [
            (SAFE, id_of(TWO), ADDED),
            (SAFE, id_of(BASE), "retired; its counts stay, and its later reports are rejected"),
        ],
    ),
    (
        "added as retired",
        names([BASE]),
        names([BASE], [TWO]),
        [(SAFE, id_of(TWO), "recorded as retired; no partition accepted it")],
    ),
    # documents of another stream
    (
        "no common label",
        names([BASE]),
        names([of("x", "y"), BASE]),
        [(NEW, "document", "no label in common with a live")],
    ),
    (
        "no common label with a live one, but with a retired one",
        names([BASE], [of("x", "y")]),
        names([of("x", "z"), BASE], [of("x", "y")]),
        [(NEW, "document", "no label in common with a live document")],
    ),
    (
        "no common label, and the former is gone",
        names([BASE]),
        names([of("x", "y")]),
        [(NEW, "document", "no label in common with the recorded document")],
    ),
    (
        "unlabelled after labels",
        names([BASE]),
        names([BITS]),
        [(NEW, id_of(BITS), "has no labels, unlike the recorded document")],
    ),
    (
        "labels after none",
        names([BITS]),
        names([BASE]),
        [(NEW, id_of(BASE), "has labels, unlike the recorded document")],
    ),
    # impossible changes of documents
    (
        "edited in place, one document",
        names([BASE]),
        names([HALF]),
        [
            (
                IMPOSSIBLE,
                id_of(HALF),
                f'replaces the recorded {id_of(BASE)}, and the stream stops; epsilon: "1" → "1/2"',
            )
        ],
    ),
    (
        "edited in place, one document, and labels not at hand",
        without_labels(names([BASE])),
        names([of("x", "y")]),
        [(IMPOSSIBLE, "document", "domain_size: 3 → 2; labels: SHA-256 ")],
    ),
    (
        "edited in place, several",
        names([BASE, OLH]),
        names([HALF, OLH]),
        [(IMPOSSIBLE, id_of(BASE), "neither documents nor retired lists it"), (WARNING, id_of(HALF), ADDED)],
    ),
    ("in neither list", names([BASE, OLH]), names([OLH]), [(IMPOSSIBLE, id_of(BASE), "snapshots wait")]),
    (
        "retired and in neither list",
        names([BASE], [OLH]),
        names([BASE]),
        [(IMPOSSIBLE, id_of(OLH), "snapshots wait")],
    ),
    (
        "accepted again at the same revision",
        names([BASE], [OLH], revision=2),
        names([BASE, OLH], revision=2),
        [(IMPOSSIBLE, id_of(OLH), "retired at revision 2; the configuration is not newer")],
    ),
    (
        "accepted again at a higher revision",
        names([BASE], [OLH]),
        names([BASE, OLH], revision=1),
        [(SAFE, id_of(OLH), "accepted again")],
    ),
    (
        "retired at a lower revision",
        names([BASE, OLH], revision=3),
        names([BASE], [OLH], revision=2),
        [(IMPOSSIBLE, id_of(OLH), "accepted at revision 3; the configuration is not newer")],
    ),
    ("retired", names([BASE, OLH]), names([BASE], [OLH]), [(SAFE, id_of(OLH), "retired; its counts stay")]),
    (
        "a 17th document, with the recorded ones",
        names(MANY[:16]),
        names([MANY[16], *MANY[1:16]], [MANY[0]]),
        [
            (SAFE, id_of(MANY[16]), ADDED),
            (SAFE, id_of(MANY[0]), "retired"),
            (IMPOSSIBLE, "configuration", "17 documents"),
        ],
    ),
    # segments
    (
        "segment added",
        names([BASE], segments=["DE"]),
        names([BASE], segments=["DE", "FR"]),
        [(SAFE, "segment FR", "added; earlier reports stay in the rest")],
    ),
    (
        "first segments",
        names([BASE]),
        names([BASE], segments=["DE", "FR"]),
        [(SAFE, "segment DE, FR", "added")],
    ),
    ("segment declared as retired", names([BASE]), names([BASE], retired_segments=["DE"]), []),
    (
        "segment retired",
        names([BASE], segments=["DE"]),
        names([BASE], retired_segments=["DE"]),
        [(SAFE, "segment DE", "retired; its counts stay, and its later reports count in the rest")],
    ),
    (
        "segment in neither list",
        names([BASE], segments=["DE"]),
        names([BASE]),
        [(IMPOSSIBLE, "segment DE", "it stays in force")],
    ),
    (
        "segment again",
        names([BASE], retired_segments=["DE"]),
        names([BASE], segments=["DE"]),
        [(IMPOSSIBLE, "segment DE", "retired at revision 0; the configuration is not newer")],
    ),
    (
        "segment again, newer",
        names([BASE], retired_segments=["DE"]),
        names([BASE], segments=["DE"], revision=1),
        [(SAFE, "segment DE", "accepted again")],
    ),
    (
        "a 257th segment, with the recorded ones",
        names([BASE], segments=NAMES[:200]),
        names([BASE], segments=NAMES[200:257], retired_segments=NAMES[:200]),
        [
            (SAFE, "segment", "added"),
            (SAFE, "segment", "retired"),
            (IMPOSSIBLE, "configuration", "257 segments"),
        ],
    ),
    (
        "reports name a segment",
        names([BASE]),
        names([COUNTRY, BASE]),
        [(WARNING, "document", 'segment: none → "country"; reports reveal more than before: country')],
    ),
    (
        "reports name a longer segment",
        names([COUNTRY]),
        names([APP, COUNTRY]),
        [(WARNING, "document", "reports reveal more than before: app")],
    ),
]


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_verdicts(recorded, asked, expected):
    found = changes(recorded, asked)
    assert [each.verdict for each in found] == [verdict for verdict, _, _ in expected], found
    for each, (_, subject, text) in zip(found, expected, strict=True):
        assert each.subject.startswith(subject)
        assert text in each.text


def test_a_document_beyond_the_bytes_of_a_partition_is_impossible():
    first, second, third = (ldp.Stream("s", ldp.OUE(epsilon, 1 << 16)) for epsilon in "123")
    windowing = Windowing(("all", "21d every 1h"))
    assert not changes(names([second, first]), names([second, first]), windowing)
    added, excess = changes(names([second, first]), names([third, second, first]), windowing)
    assert (added.subject, added.verdict) == (id_of(third), WARNING)
    size = 3 * (1 + windowing.most_panes) * 8 * (1 << 16)
    assert excess.verdict is IMPOSSIBLE and f"{size:,} bytes of counts" in excess.text


def test_a_collision_with_a_recorded_document_is_impossible():
    forged = names([BASE])
    forged.documents[BASE.fingerprint.hex()] = HALF.hashed.decode()
    (found,) = changes(forged, names([BASE]))
    assert (found.verdict, found.subject) == (IMPOSSIBLE, id_of(BASE))
    assert found.text == "another document with this fingerprint is recorded"


def test_the_table_is_complete():
    assert len(TABLE) >= 40
