"""Documents in files, and queries of several documents."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import ldp
from ldp.consistency import METHODS
from ldp.query import SetQuery, TopQuery
from ldp.segments import Segments
from tests.support.docs import every_block
from tests.support.tables import rows
from worker.config import ConfigError, Served, load, parse
from worker.config.documents import from_files
from worker.config.rows import slots_of
from worker.config.schema import QueryTable, Rows, Snapshots
from worker.config.snapshots import most_bytes
from worker.config.streams import _queries
from worker.counting.rules import RequestedRule, Status
from worker.counting.windows import Windowing

OLD = ldp.Stream("s", ldp.GRR("1", 3), ["red", "blue", "grey"])
NEW = ldp.Stream("s", ldp.OUE("2", 3), ["blue", "green", "red"])
# the SHA-256 of these two documents begins with the same four bytes
COLLIDING = [ldp.Stream("s", ldp.GRR("1", 2), ["no", f"yes {i}"]) for i in (42406, 49502)]


def written(folder, **documents):
    for name, stream in documents.items():
        body = stream.document() if isinstance(stream, ldp.Stream) else stream
        (folder / f"{name}.json").write_text(json.dumps(body), encoding="utf-8")
    return [Path(f"{name}.json") for name in documents]


def fault(folder, live, retired=()):
    with pytest.raises(ConfigError) as caught:
        from_files("s", live, retired, "streams[0]", folder)
    return str(caught.value).replace(f"{folder}/", "")


def test_documents_are_read_in_order_and_retired_ones_are_last(tmp_path):
    new, old, third = written(tmp_path, new=NEW, old=OLD, third=COLLIDING[0])
    fleet = from_files("s", [new, old], [third], "streams[0]", tmp_path)
    assert fleet == ldp.Fleet((NEW, OLD, COLLIDING[0]), frozenset([COLLIDING[0].fingerprint]))
    assert fleet.labels == ("blue", "green", "red", "grey", "no", "yes 42406")
    assert from_files("s", [tmp_path / "new.json"], [], "streams[0]", Path("elsewhere")).documents == (NEW,)


def test_files_without_a_document(tmp_path):
    sealed = {**OLD.document(), "labels": 64 * "a"}
    (tmp_path / "text.json").write_text("protocol = 'grr'", encoding="utf-8")
    listed, incomplete, unsaved = written(tmp_path, listed=[1], incomplete={"protocol": "grr"}, sealed=sealed)
    prefix, hint = "streams[0].documents[0]: ", "; ldp-worker document prints one"
    for path, expected in [
        ("none.json", "none.json cannot be read (No such file or directory)"),
        (
            "text.json",
            f"text.json is not a document (not JSON: Expecting value: line 1 column 1 (char 0)){hint}",
        ),
        (listed, f"listed.json is not a document (the document must be a JSON object, not list){hint}"),
        (
            unsaved,
            "sealed.json is not a document (it has the SHA-256 of the labels; a document with its labels is needed)"
            f"{hint}",
        ),
    ]:
        assert fault(tmp_path, [Path(path)]) == prefix + expected
    assert fault(tmp_path, [incomplete]).startswith(
        f"{prefix}incomplete.json is not a document (the document has the keys"
    )


def test_documents_that_are_listed_twice(tmp_path):
    new, old, copy = written(tmp_path, new=NEW, old=OLD, copy=OLD)
    for lists, place, other in (
        (([new, old, copy],), "documents[2]", "documents[1]"),
        (([new], [old, copy]), "retired[1]", "retired[0]"),
        (([new, old], [copy]), "retired[0]", "documents[1]"),
    ):
        assert fault(tmp_path, *lists) == twice(f"streams[0].{place}", OLD, other)


def twice(place, stream, other):
    return (
        f"{place}: its fingerprint {stream.fingerprint.hex()} is that of {other}; list a document once, in documents or"
        " retired. Change one of two documents, for example the order of its labels"
    )


def test_documents_whose_fingerprints_collide(tmp_path):
    one, other = COLLIDING
    assert one.fingerprint == other.fingerprint and one.hashed != other.hashed
    paths = written(tmp_path, one=one, other=other)
    assert fault(tmp_path, paths) == twice("streams[0].documents[1]", one, "documents[0]")
    assert fault(tmp_path, paths[:1], paths[1:]) == twice("streams[0].retired[0]", one, "documents[0]")


def test_documents_with_and_without_labels(tmp_path):
    paths = written(tmp_path, new=NEW, bits=ldp.Stream("s", ldp.OUE("1", 3)))
    assert fault(tmp_path, paths) == (
        "streams[0].documents: some documents have labels and some have none; give all documents labels, or none"
    )


def asked(fleet, **query):
    return _queries([QueryTable(name="q", **query)], fleet, "streams[0]")


def test_queries_of_several_documents_name_labels():
    fleet = ldp.Fleet((NEW, OLD))
    assert fleet.labels == ("blue", "green", "red", "grey")
    assert asked(fleet, values=["grey", "blue"]) == (SetQuery("q", (3, 0)),)
    assert asked(fleet, where=["gre*"]) == (SetQuery("q", (1, 3)),)
    assert asked(fleet, top=4) == (TopQuery("q", 4),)
    for values in ([0], ["grey", 1], ["gold"]):
        with pytest.raises(
            ConfigError, match=r"^streams\[0\]\.queries\[0\]\.values: .* given; allowed is a label$"
        ):
            asked(fleet, values=values)
    with pytest.raises(ConfigError, match="top is 5; allowed is 1 to 4"):
        asked(fleet, top=5)
    assert asked(ldp.Fleet((NEW,)), values=[2]) == (SetQuery("q", (2,)),)
    bits = ldp.Fleet(tuple(ldp.Stream("s", ldp.OUE(epsilon, d)) for epsilon, d in (("1", 3), ("2", 5))))
    assert asked(bits, values=[4]) == (SetQuery("q", (4,)),)


def test_costs_of_several_documents_are_added():
    windowing = Windowing(("all", "1h"))
    configured = RequestedRule(limits=replace(RequestedRule().limits, windowing=windowing))
    one, both = (Served(ldp.Fleet(each), "reports", configured=configured) for each in ((NEW,), (NEW, OLD)))
    assert (one.cost.pane_bytes, both.cost.pane_bytes) == (24, 48)
    windows, vectors = 1 + one.cost.at_once, len(METHODS) + 5
    assert most_bytes(Snapshots(), one) == windows * 16 * vectors * 3
    numbers = vectors * len(both.fleet.labels) + 6 * (3 + 3)  # the population, and Base of each document
    assert most_bytes(Snapshots(), both) == windows * 16 * numbers
    assert slots_of(Rows(topic="rows"), both).ranks == {"": 4}


GIVEN = 'protocol = "grr" ; epsilon = "1" ; labels = ["red", "blue", "grey"]'
INLINE = GIVEN.replace(" ; ", "\n") + "\n"
SLICED = f'{GIVEN} ; segment = "country"'
LEVELS = "allowed are levels of 1 to 32 of A-Z a-z 0-9 . _ -, joined by :, at most 64 in total"


LIVE, GONE = (json.dumps([f"{letter}{i}" for i in range(n)]) for letter, n in (("S", 200), ("R", 57)))


def configured(folder, keys):
    path = folder / "worker.toml"
    path.write_text(f'[[streams]]\nname = "s"\ntopic = "reports"\n{keys}', encoding="utf-8")
    return load(path, {}).streams[0]


def refused(folder, keys):
    with pytest.raises(ConfigError) as caught:
        configured(folder, keys)
    return str(caught.value).replace(f"{folder}/", "").partition(": ")[2]


def test_a_document_in_a_file_is_the_inline_document(tmp_path):
    written(tmp_path, old=OLD)
    inline, file = (
        configured(tmp_path, f"revision = 3\n{keys}") for keys in (INLINE, 'documents = ["old.json"]')
    )
    assert inline == file
    assert file.configured.names(file.fleet).documents == {OLD.fingerprint.hex(): Status()}


def test_documents_and_segments_are_configured(tmp_path):
    new, old = (replace(each, segment="country:app") for each in (NEW, OLD))
    written(tmp_path, new=new, old=old)
    keys = 'documents = ["new.json"]\nretired = ["old.json"]\nrevision = 2\nsegments = ["DE", "US:4.3"]\n'
    served = configured(tmp_path, keys + 'retired_segments = ["US:4.2"]')
    assert served.fleet == ldp.Fleet((new, old), frozenset([old.fingerprint]))
    names = served.configured.names(served.fleet)
    assert names.documents == {
        new.fingerprint.hex(): Status(2),
        old.fingerprint.hex(): Status(2, retired=True),
    }
    assert names.segments == {"DE": Status(2), "US:4.3": Status(2), "US:4.2": Status(2, retired=True)}
    segments = [f"{served.name}:{each}" for each in ("DE", "US", "US:4.2", "US:4.3")]
    assert served.parts == [f"{served.name}@{each.fingerprint.hex()}" for each in (new, old)] + segments
    assert configured(tmp_path, f'{INLINE}segment = "country:app"').stream == old
    cells = len(Segments(["DE", "US:4.3", "US:4.2"]).cells)
    assert [*served.cell_bytes.values()] == 2 * [8 * 3 * cells]
    bodies = (len(METHODS) + 5) * 4 + 6 * (3 + 3) + (2 + 5) * 4 * len(["DE", "US", "US:4.2", "US:4.3"])
    assert most_bytes(Snapshots(), served) == 16 * bodies


REFUSED = f"""
revision = 1 | .protocol: nothing given; it is needed, or documents
documents = [] | .documents: an empty list given; at least one is needed
{GIVEN} ; documents = ["old.json"] | .epsilon: given with documents; allowed is one of both
documents = ["old.json"] ; privacy = {{unit = "device"}} | .privacy: given with documents; allowed is one of
{GIVEN} ; retired = ["new.json"] | .retired: given without documents; write the live documents to files, too
documents = ["old.json"] ; retired = ["copy.json"] | {twice(".retired[0]", OLD, "documents[0]")}
{GIVEN} ; segments = ["DE"] | .segments: given; it needs a document with the key segment
{GIVEN} ; retired_segments = ["DE"] | .retired_segments: given; it needs a document with the key segment
{SLICED} ; segments = ["DE", "U S"] | .segments[1]: 'U S' given; {LEVELS}
{SLICED} ; segments = ["DE", "US", "DE"] | .segments[2]: 'DE' given more than once; list each segment once
{SLICED} ; segments = ["DE"] ; retired_segments = ["DE"] | .retired_segments[0]: 'DE' given more than once;
{SLICED} ; segments = ["DE", "US:4.3"] | .segments[1]: 'US:4.3' given; the levels of reports are country
{GIVEN} ; segment = "~" | .segment: '~' given; allowed are levels of 1 to 32 of
{SLICED} ; segments = {LIVE} ; retired_segments = {GONE} | : 257 segments, live and retired; at most 256 are allowed
documents = ["old.json", "new.json"] ; windows = ["60d every 40m"] | : 4,326 panes of each of 2 documents; at most 4,096
documents = ["old.json", "new.json"] ; queries = [{{name = "q", values = [0]}}] | .queries[q].values: 0 given;
"""


@pytest.mark.parametrize(("keys", "expected"), rows(REFUSED), ids=range(16))
def test_keys_of_documents_and_segments_that_are_refused(tmp_path, keys, expected):
    written(tmp_path, old=OLD, new=NEW, copy=OLD)
    assert refused(tmp_path, keys).startswith(f"streams[s]{expected}")


def test_seventeen_documents_are_refused(tmp_path):
    paths = written(tmp_path, **{f"d{i}": ldp.Stream("s", ldp.OUE(f"{i + 1}/9", 3)) for i in range(17)})
    listed = [json.dumps([*map(str, each)]) for each in (paths[:10], paths[10:])]
    text = refused(tmp_path, f"documents = {listed[0]}\nretired = {listed[1]}")
    assert text == "streams[s]: 17 documents, live and retired; at most 16 are allowed"


def test_parts(tmp_path):
    def snapshots(text):
        return parse(f'[snapshots]\n{text}\n[[streams]]\nname = "s"\ntopic = "r"\n{INLINE}').snapshots

    assert (snapshots("").parts_fewest, snapshots("").parts_methods) == (1000, ["base", "norm-sub"])
    assert snapshots('parts_fewest = 5\nparts_methods = ["mle-apx", "base"]').parts_methods == [
        "base",
        "mle-apx",
    ]
    for wrong in ("parts_fewest = 0", 'parts_methods = ["norm-sub"]', "parts_methods = []"):
        with pytest.raises(ConfigError, match=r"^snapshots\.parts_"):
            snapshots(wrong)


def test_the_example_of_the_reference_is_a_configuration(tmp_path):
    ((_, block),) = every_block("reference/configuration-streams")
    streams = [replace(each, segment="country:app") for each in (OLD, NEW, COLLIDING[0])]
    written(tmp_path, **{f"colours-{i}": stream for i, stream in enumerate(streams, 1)})
    served = configured(tmp_path, block)
    assert served.fleet.documents == (streams[2], streams[1], streams[0])
    assert [*served.configured.segments] == ["DE", "FR", "US:4.3", "US:4.2"]


def test_the_example_of_the_guide_is_a_configuration(tmp_path):
    (block,) = [text for language, text in every_block("guides/segments") if language == "toml"]
    written(tmp_path, **{"colours-1": OLD, "colours-2": replace(NEW, segment="country:app")})
    served = configured(tmp_path, block)
    assert served.fleet.documents == (replace(NEW, segment="country:app"), OLD)
    assert [*served.configured.segments] == ["DE", "FR", "US:4.3"]
