"""A stream's name, labels, document and fingerprint."""

import hashlib
import json
import pickle
from fractions import Fraction

import pytest

import ldp
from ldp.privacy.declaration import Declaration
from ldp.stream import fingerprint

GRR = ldp.GRR("0.5", domain_size=3)
OLH = ldp.OLH("1", domain_size=845)
LABELS = ("rouge", "grün", "青")


def sha256(text):
    return hashlib.sha256(text.encode()).digest()


def test_the_fingerprint_is_over_the_canonical_document():
    """The canonical forms written out by hand."""
    assert (
        ldp.Stream("s", GRR).fingerprint == sha256('{"domain_size":3,"epsilon":"1/2","protocol":"grr"}')[:4]
    )
    text = '{"domain_size":845,"epsilon":"1/1","g":4,"hash":"mul32","protocol":"olh"}'
    assert ldp.Stream("s", OLH).fingerprint == sha256(text)[:4]
    labels = sha256('["rouge","grün","青"]').hex()
    text = f'{{"domain_size":3,"epsilon":"1/2","labels":"{labels}","protocol":"grr"}}'
    assert ldp.Stream("s", GRR, LABELS).fingerprint == sha256(text)[:4]


def test_only_the_document_enters_the_fingerprint():
    same = ldp.Stream("s", OLH).fingerprint
    assert ldp.Stream("other", OLH).fingerprint == same
    assert ldp.Stream("s", ldp.OLH(Fraction(2, 2), 845, g=4)).fingerprint == same
    different = [
        ldp.OLH("1.0000000001", 845),
        ldp.OLH("1", 846),
        ldp.OLH("1", 845, g=5),
        ldp.OLH("1", 845, hash="xxh32"),
        ldp.GRR("1", 845),
    ]
    assert same not in {ldp.Stream("s", oracle).fingerprint for oracle in different}
    assert ldp.Stream("s", GRR, LABELS).fingerprint != ldp.Stream("s", GRR, LABELS[::-1]).fingerprint


@pytest.mark.parametrize("stream", [ldp.Stream("a", GRR), ldp.Stream("b", GRR, LABELS), ldp.Stream("c", OLH)])
def test_a_document_reproduces_the_stream(stream):
    again = ldp.Stream.from_document(stream.name, stream.document())
    assert again == stream
    assert hash(again) == hash(stream)
    assert again.fingerprint == stream.fingerprint
    assert again.document() == stream.document()
    assert pickle.loads(pickle.dumps(stream)) == stream


DECLARED = {"unit": "device", "reports": 2, "period": "36h", "noise": "memoised", "horizon": "30d"}


def test_a_declaration_changes_the_document_and_its_fingerprint():
    plain = ldp.Stream("s", OLH)
    declared = ldp.Stream.from_document("s", plain.document() | {"privacy": DECLARED})
    assert declared.document() == plain.document() | {"privacy": DECLARED}
    assert json.loads(declared.hashed) == json.loads(plain.hashed) | {"privacy": DECLARED}
    assert declared.fingerprint == fingerprint(declared.document()) != plain.fingerprint
    assert declared == ldp.Stream("s", OLH, privacy=declared.privacy) != plain
    assert b"privacy" not in plain.hashed


@pytest.mark.parametrize(
    ("reports", "period", "horizon", "aligned", "anywhere"),
    [(1, "24h", "365d", 365, 366), (2, "36h", "30d", 40, 42), (3, "7d", "8d", 6, 9), (1, "60s", "1m", 1, 2)],
)
def test_a_horizon_overlaps_a_number_of_periods(reports, period, horizon, aligned, anywhere):
    declared = Declaration("device", reports, period, "fresh", horizon)
    assert (declared.most_reports(aligned=True), declared.most_reports()) == (aligned, anywhere)
    length = int(horizon[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[horizon[-1]]
    overlapped = {  # counted for each second at which a horizon can begin
        (start + length - 1) // declared.period_seconds - start // declared.period_seconds + 1
        for start in range(0, declared.period_seconds, 12)
    }
    assert reports * max(overlapped) <= anywhere
    assert reports * overlapped.pop() >= aligned - reports


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"unit": ""}, ValueError, "stream s: privacy.unit is empty"),
        ({"unit": None}, TypeError, "privacy.unit is None; it must be a string"),
        ({"reports": 0}, ValueError, "privacy.reports is 0; allowed is 1 to 1000000"),
        ({"reports": "1"}, TypeError, "privacy.reports must be an integer"),
        (
            {"period": "1.5h"},
            ValueError,
            "privacy.period is '1.5h'; allowed is a whole number from 1 to 999999 with",
        ),
        ({"period": "٣h"}, ValueError, "privacy.period is"),
        ({"period": 24}, TypeError, "privacy.period is 24; it must be a string"),
        ({"horizon": "35h"}, ValueError, "privacy.horizon is '35h'; it must be at least the period, '36h'"),
        ({"noise": "none"}, ValueError, "privacy.noise is 'none'; allowed are 'fresh' and 'memoised'"),
        ({"noise": ["fresh"]}, TypeError, "privacy.noise is"),
        ({"budget": 1}, ValueError, "privacy has the keys .*'budget'.*; it needs exactly"),
    ],
)
def test_an_invalid_declaration_is_refused(change, error, says):
    with pytest.raises(error, match=says):
        ldp.Stream.from_document("s", GRR.parameters() | {"privacy": DECLARED | change})
    with pytest.raises(TypeError, match="privacy must be a JSON object, not list"):
        ldp.Stream.from_document("s", GRR.parameters() | {"privacy": [DECLARED]})
    with pytest.raises(TypeError, match="privacy must be a Declaration, not dict"):
        ldp.Stream("s", GRR, privacy=DECLARED)


def test_a_document_does_not_recompute_the_integers():
    document = ldp.Stream("s", OLH).document() | {"g": 9}
    assert ldp.Stream.from_document("s", document).oracle.g == 9
    document = ldp.Stream("s", ldp.SubsetSelection("1", 845)).document()
    assert document == {"protocol": "subset", "epsilon": "1/1", "domain_size": 845, "k": 227}
    oracle = ldp.Stream.from_document("s", document | {"k": 9}).oracle
    assert (oracle.k, oracle.report_dtype.itemsize) == (9, 18)
    with pytest.raises(ValueError, match="k"):
        ldp.Stream.from_document("s", document | {"k": 845})


@pytest.mark.parametrize("key", ["protocol", "epsilon", "domain_size", "g", "hash"])
def test_an_incomplete_document_is_refused(key):
    document = ldp.Stream("s", OLH).document()
    del document[key]
    with pytest.raises(ValueError, match="protocol" if key == "protocol" else "exactly"):
        ldp.Stream.from_document("s", document)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"version": 1}, ValueError),
        ({"protocol": "oue"}, ValueError),
        ({"protocol": ["olh"]}, ValueError),
        ({"protocol": "grr"}, ValueError),
        ({"epsilon": "2/2"}, ValueError),
        ({"epsilon": "0/1"}, ValueError),
        ({"epsilon": 1.0}, TypeError),
        ({"domain_size": "845"}, TypeError),
        ({"domain_size": 0}, ValueError),
        ({"g": 1}, ValueError),
        ({"g": 4.0}, TypeError),
        ({"hash": "crc32"}, ValueError),
        ({"hash": ["mul32"]}, ValueError),
        ({"labels": None}, TypeError),
        ({"labels": ["a", "b"]}, ValueError),
        ({"labels": [1] * 845}, TypeError),
    ],
)
def test_an_invalid_document_is_refused(change, error):
    with pytest.raises(error):
        ldp.Stream.from_document("s", ldp.Stream("s", OLH).document() | change)


@pytest.mark.parametrize("name", ["", "x" * 201, "a:b", "a/b", "a{b}", "a b", "a\n", "é", "٣", 7, None, b"a"])
def test_bad_names_are_refused(name):
    with pytest.raises(ValueError, match="allowed are 1 to 200"):
        ldp.Stream(name, GRR)


@pytest.mark.parametrize(
    ("labels", "error", "says"),
    [
        (["a", "b"], ValueError, "2 labels for 3 values"),
        (["a", "b", "a"], ValueError, "labels 0 and 2"),
        (["a", "", "b"], ValueError, "label 1 is empty"),
        (["a", 2, "b"], TypeError, "label 1 is 2"),
        (["a", "b", "\ud800"], ValueError, "surrogates"),
        (["a", "b\0", "c"], ValueError, r"label 1 is 'b\\x00'; control characters are not allowed"),
        (["a", "b", "\x1b[2J"], ValueError, "control characters are not allowed"),
        ("abc", TypeError, "labels must be"),
        ({"a": 1, "b": 2, "c": 3}, TypeError, "labels must be"),
    ],
)
def test_bad_labels_are_refused(labels, error, says):
    with pytest.raises(error, match=says):
        ldp.Stream("s", GRR, labels)


def test_all_duplicate_labels_are_named_at_once():
    with pytest.raises(
        ValueError, match="labels 0 and 2 are both 'a'; labels 1 and 3 are both 'b'; labels 0 and 4"
    ):
        ldp.Stream("s", ldp.GRR("1", 5), list("ababa"))
    with pytest.raises(ValueError, match=r"labels 0 and 20 are both 'a'; 30 more$"):
        ldp.Stream("s", ldp.GRR("1", 51), ["a"] * 51)


def test_labels_that_look_alike_and_one_value_have_a_warning():
    distinct = ["café", "cafe", "Café", "red", "red wine"]
    alike = [("café", "cafe\u0301"), ("red", "red "), ("red", "\u00a0red"), ("A1", "Ａ1"), ("ﬁn", "fin")]
    assert ldp.Stream("s", ldp.GRR("1", 5), distinct).warnings == []
    for one, other in alike:
        (warning,) = ldp.Stream("s", ldp.GRR("1", 3), [one, "x", other]).warnings
        assert warning == (
            f"labels differ only by Unicode form or spaces at an end: 0 {one!a} and 2 {other!a}"
        )
    labels = [label for pair in alike for label in pair]
    (warning,) = ldp.Stream("s", ldp.GRR("1", 8), [*dict.fromkeys(labels)][:8]).warnings
    assert warning.count(" and ") == 4  # three pairs, and a third red
    for oracle in (ldp.GRR("1", 1), ldp.Unary("3/4", "1/4", 1)):
        (warning,) = ldp.Stream("s", oracle).warnings
        assert warning.startswith("the domain has one value, which every client of ldp reports; ")


SHAPES = ldp.Stream("s", ldp.GRR("1", 6), ["red square", "blue square", "red disc", "Red disc", "a*b", "[x]"])


@pytest.mark.parametrize(
    ("predicates", "found"),
    [
        (["red*"], (0, 2)),
        (["* disc", "red*"], (0, 2, 3)),  # the red disc once
        (["[rR]ed disc"], (2, 3)),
        (["?*square"], (0, 1)),
        (["red"], None),  # the whole label
        (["a[*]b", "[[]x]"], (4, 5)),  # verbatim
        (["[!rb]*"], (3, 4, 5)),
        ([lambda label: len(label) == 3, "red*", "red disc"], (0, 2, 4, 5)),
    ],
)
def test_a_set_is_a_union_over_predicates(predicates, found):
    if found is None:
        with pytest.raises(ValueError, match="no label satisfies 'red'"):
            SHAPES.where(*predicates)
    else:
        assert SHAPES.where(*predicates) == found
        assert SHAPES.where(*reversed(predicates)) == found


def test_invalid_predicates_are_refused():
    with pytest.raises(ValueError, match=r"no label satisfies 'blue disc'"):
        SHAPES.where("red*", "blue disc")
    with pytest.raises(ValueError, match="no label satisfies <function"):
        SHAPES.where(lambda _: False)
    with pytest.raises(ValueError, match="at least one is needed"):
        SHAPES.where()
    with pytest.raises(TypeError, match="is 3"):
        SHAPES.where("red*", 3)
    with pytest.raises(ValueError, match="stream s has no labels"):
        ldp.Stream("s", GRR).where("red*")


def test_a_document_of_a_newer_version_is_refused_as_such():
    said = r"stream s: the document has version 2, which is newer; supported is version 1, which has no key 'version'"
    with pytest.raises(ValueError, match=said):
        ldp.Stream.from_document("s", ldp.Stream("s", GRR).document() | {"version": 2, "protocol": "new"})
