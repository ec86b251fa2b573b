"""The verdicts of `check` on changed documents and segments, as a table."""

from dataclasses import replace

import pytest

import ldp
from ldp.privacy.declaration import Declaration
from tests.support.tables import rows
from worker.check.changes import Listed, Verdict, changes
from worker.counting.rules import Names, RequestedRule, Status
from worker.counting.windows import Windowing

SAFE, WARNING, IMPOSSIBLE = Verdict.SAFE, Verdict.WARNING, Verdict.IMPOSSIBLE
ABC = ["a", "b", "c"]


def doc(oracle=None, labels=ABC):
    return ldp.Stream("s", oracle or ldp.OUE("1", domain_size=len(labels)), labels)


def of(*labels):
    return doc(labels=list(labels))


BASE = doc()
HALF, TWO = doc(ldp.OUE("1/2", 3)), doc(ldp.OUE("2", 3))
DOCUMENTS = {
    "BASE": BASE,
    "HALF": HALF,
    "TWO": TWO,
    "OLH": doc(ldp.OLH("1", 3)),
    "XXH": doc(ldp.OLH("1", 3, hash="xxh32")),
    "GRR": doc(ldp.GRR("1", 3)),
    "GRR30": doc(ldp.GRR("1", 30), [*ABC, *map(str, range(27))]),
    "RATE": doc(ldp.Response(p="3/4", domain_size=3)),
    "RATES": doc(ldp.Response(p="4/5", domain_size=3)),
    "BITS": ldp.Stream("s", ldp.OUE("1", 3)),
    "BITS2": ldp.Stream("s", ldp.OUE("2", 3)),
    "DECLARED": ldp.Stream("s", BASE.oracle, ABC, Declaration("device", 1, "24h", "fresh", "365d")),
    "COUNTRY": replace(BASE, segment="country"),
    "APP": replace(BASE, segment="country:app"),
} | {
    "".join(labels): of(*labels)
    for labels in ("abcd", "ab", "cab", "abC", "ad", "abd", "de", "cd", "xy", "xz")
}
MANY = [doc(ldp.OUE(f"{i}/7", 3)) for i in range(8, 25)]
NAMES = [f"S{i}" for i in range(300)]


def names(live=(), retired=(), segments=(), retired_segments=(), revision=0):
    fleet = ldp.Fleet((*live, *retired), frozenset(each.fingerprint for each in retired))
    declared = {name: Status(revision) for name in segments}
    declared |= {name: Status(revision, True) for name in retired_segments}
    return Listed.of(fleet, RequestedRule(revision, segments=declared).names(fleet))


def listed(text):
    """Documents and segments (`+DE`), retired ones (`-OLH`, `~DE`), and the revision (`@2`)."""
    marked = {mark: [word[1:] for word in text.split() if word[0] == mark] for mark in "-+~@"}
    live = [DOCUMENTS[word] for word in text.split() if word[0] not in marked]
    if not live:
        return Listed({}, Names())
    retired, (revision,) = [DOCUMENTS[word] for word in marked["-"]], marked["@"] or ["0"]
    return names(live, retired, marked["+"], marked["~"], int(revision))


def id_of(stream):
    return f"document {stream.fingerprint.hex()}"


REPLACES = f'replaces the recorded {id_of(BASE)}, and the stream stops; epsilon: "1" → "1/2"'
RETIRED = "retired; its counts stay, and its later reports are rejected"
LOW, MORE = "revision of the configuration is", "reports reveal more than before: "
TABLE = f"""
nothing recorded | | BASE |
the same document, other queries or another file | BASE | BASE |
another order in documents | BASE OLH | OLH BASE |
a higher revision alone | BASE | BASE @4 |
retired again | BASE -OLH | BASE -OLH @2 |
larger ε | BASE | TWO BASE | safe TWO: added; epsilon: "1" → "2"
smaller ε | BASE | HALF BASE | warning HALF: weaker: a report has 4.3 times the variance of one of
protocol | GRR | BASE GRR | warning BASE: protocol: "grr" → "oue"; weaker
stronger protocol | BASE | GRR BASE | safe GRR: protocol: "oue" → "grr"
hash | OLH | XXH OLH | safe XXH: added; hash: "mul32" → "xxh32"
rate | RATE | RATES RATE | safe RATES: added; p: "3/4" → "4/5"
label added | BASE | abcd BASE | warning abcd: added; domain_size: 3 → 4; labels added: d; a label that was part of
label removed | BASE | ab BASE | safe ab: added; domain_size: 3 → 2; labels removed: c
labels reordered | BASE | cab BASE | safe cab: labels in another order
label renamed | BASE | abC BASE | warning abC: labels added: C; labels removed: c; a renamed label has two histories
label that an older document has | BASE ad | abd BASE ad | safe abd: added; labels added: d; labels removed: c
many labels | BASE | GRR30 BASE | warning GRR30: labels added: 0, 1, 2, 3, 4, 5, 6, 7, 19 more
weaker by a larger domain of grr | GRR | GRR30 GRR | warning GRR30: weaker: a report has
a declaration | BASE | DECLARED BASE | safe DECLARED: added; privacy: none →
unlabelled | BITS | BITS2 BITS | warning BITS2: values are joined by number
two, the second through the first | BASE | de cd BASE | warning cd: labels added: d & warning de: labels added: e
added and the former retired at once | BASE | TWO -BASE | safe TWO: added & safe BASE: {RETIRED}
added as retired | BASE | BASE -TWO | safe TWO: recorded as retired; no partition accepted it
no common label | BASE | xy BASE | new_stream xy: no label in common with a live
a common label with a retired one only | BASE -xy | xz BASE -xy | new_stream xz: no label in common with a live document
no common label, and the former is gone | BASE | xy | new_stream xy: no label in common with the recorded document
unlabelled after labels | BASE | BITS | new_stream BITS: has no labels, unlike the recorded document
labels after none | BITS | BASE | new_stream BASE: has labels, unlike the recorded document
edited in place, one document | BASE | HALF | impossible HALF: {REPLACES}
edited in place, several | BASE OLH | HALF OLH | impossible BASE: neither documents nor retired & warning HALF: added
in neither list | BASE OLH | OLH | impossible BASE: snapshots wait
retired and in neither list | BASE -OLH | BASE | impossible OLH: snapshots wait
accepted again at the same revision | BASE -OLH @2 | BASE OLH @2 | impossible OLH: retired at revision 2; the {LOW} not
accepted again at a higher revision | BASE -OLH | BASE OLH @1 | safe OLH: accepted again
retired at a lower revision | BASE OLH @3 | BASE -OLH @2 | impossible OLH: accepted at revision 3; the {LOW} lower
retired | BASE OLH | BASE -OLH | safe OLH: retired; its counts stay
segment added | BASE +DE | BASE +DE +FR | safe segment FR: added; earlier reports stay in the rest
first segments | BASE | BASE +DE +FR | safe segment DE, FR: added
segment declared as retired | BASE | BASE ~DE |
segment retired | BASE +DE | BASE ~DE | safe segment DE: retired; its counts stay, and its later reports count in the
segment in neither list | BASE +DE | BASE | impossible segment DE: it stays in force
segment again | BASE ~DE | BASE +DE | impossible segment DE: retired at revision 0; the {LOW} not
segment again, newer | BASE ~DE | BASE +DE @1 | safe segment DE: accepted again
reports name a segment | BASE | COUNTRY BASE | warning COUNTRY: segment: none → "country"; {MORE}country
reports name a longer segment | COUNTRY | APP COUNTRY | warning APP: {MORE}app
"""


def verdicts(text):
    """Verdict, subject and text of each finding."""
    for finding in filter(None, text.split(" & ")):
        verdict, _, rest = finding.partition(" ")
        subject, _, said = rest.partition(": ")
        yield Verdict[verdict.upper()], id_of(DOCUMENTS[subject]) if subject in DOCUMENTS else subject, said


def demand(found, expected):
    assert [each.verdict for each in found] == [verdict for verdict, _, _ in expected], found
    for each, (_, subject, text) in zip(found, expected, strict=True):
        assert each.subject.startswith(subject)
        assert text in each.text


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"), [pytest.param(*row[1:], id=row[0]) for row in rows(TABLE)]
)
def test_verdicts(recorded, asked, expected):
    demand(changes(listed(recorded), listed(asked)), [*verdicts(expected)])


def test_an_edited_document_without_its_labels_at_hand_is_impossible():
    recorded = Listed(listed("BASE").documents, listed("BASE").names)
    demand(
        changes(recorded, listed("xy")), [*verdicts("impossible xy: domain_size: 3 → 2; labels: SHA-256 ")]
    )


def test_a_17th_document_and_a_257th_segment_are_impossible_with_the_recorded_ones():
    first, *others, last = MANY[:17]
    expected = [(SAFE, id_of(last), "added"), (SAFE, id_of(first), "retired")]
    found = changes(names([first, *others]), names([last, *others], [first]))
    demand(found, [*expected, (IMPOSSIBLE, "configuration", "17 documents")])
    asked = names([BASE], segments=NAMES[200:257], retired_segments=NAMES[:200])
    expected = [(SAFE, "segment", "added"), (SAFE, "segment", "retired")]
    found = changes(names([BASE], segments=NAMES[:200]), asked)
    demand(found, [*expected, (IMPOSSIBLE, "configuration", "257 segments")])


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
