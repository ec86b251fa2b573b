"""Published populations of several documents, compared with the audit's own arithmetic from their states."""

import json
import random

import numpy as np
import pytest

import ldp
from ldp import snapshot
from ldp.query import SetQuery, TopQuery
from ldp.snapshot import Cut
from worker.audit.errors import Difference
from worker.audit.parsing import by_fingerprint
from worker.audit.populations import Joined, Population, expect_population
from worker.audit.rows import differing
from worker.audit.snapshots import Message
from worker.audit.topic import Snapshots

LABELS = ["red", "green", "blue", "grey", "pink", "cyan", "teal", "gold", "lime", "plum"]
ORACLES = [
    lambda d: ldp.GRR("1", d),
    lambda d: ldp.OUE("1/2", d),
    lambda d: ldp.SUE("2", d),
    lambda d: ldp.OLH("1", d),
    lambda d: ldp.SubsetSelection("1", d),
    lambda d: ldp.HadamardResponse("2", d),
    lambda d: ldp.PGR("1", d),
    lambda d: ldp.Response("2/3", d),
    lambda d: ldp.RAPPOR("1/2", "3/4", "1/2", d),
]
RULE = {"offset": 0, "revision": 1, "most_reports": 9, "hamming_weight": True}


class Fleet:
    """Documents with some of the labels, their counts and the published messages."""

    def __init__(self, seed, documents=None, labelled=True):
        rng, self.coins = random.Random(seed), np.random.default_rng(seed)
        self.streams = []
        for make in rng.sample(ORACLES, documents or rng.randrange(2, 5)):
            labels = rng.sample(LABELS, rng.randrange(2, 9))
            self.streams.append(ldp.Stream("s", make(len(labels)), labels=labels if labelled else None))
        self.documents = by_fingerprint(*(each.document() for each in self.streams))
        self.counted, estimates = {}, []
        empty = rng.randrange(len(self.streams) + 2)  # no document has no reports, in most cases
        for i, stream in enumerate(self.streams):
            n = 0 if i == empty else rng.choice([1, 40, 3000])
            estimates.append(self.estimate(stream, n))
        self.retired = frozenset(each.fingerprint for each in self.streams[:1] if rng.randrange(2))
        fleet = ldp.Fleet(tuple(self.streams), self.retired)
        statuses = {each.fingerprint.hex(): [0, each.fingerprint in self.retired] for each in self.streams}
        cut = Cut({0: 12}, {}, rules={0: [RULE | {"documents": statuses}]})
        queries = [
            SetQuery("some", rng.sample(range(fleet.size), 2)),
            SetQuery("one", (0,)),
            TopQuery("most", 2),
        ]
        if all(each is None for each in estimates):
            estimates[0] = self.estimate(self.streams[0], 50)
        given = {"queries": queries, "identity": "ab" * 16, "published": 1}
        taken = snapshot.rounded(snapshot.take(fleet, fleet.estimate(estimates), cut, 4, **given))
        self.taken = taken
        self.messages = [
            (each.key.removeprefix("s/"), dict(each.headers(4)), each.body) for each in snapshot.encode(taken)
        ]

    @property
    def reports(self):
        return [self.counted.get(name, (0, None))[0] for name in self.documents]

    def estimate(self, stream, n):
        if not n:
            return None
        oracle = stream.oracle
        users = np.minimum(self.coins.geometric(0.4, n) - 1, oracle.domain_size - 1)
        state = oracle.zeros()
        oracle.accumulate(state, oracle.perturb(users, rng=self.coins))
        self.counted[stream.fingerprint.hex()] = n, state
        return oracle.estimate(oracle.support(state), n)

    def expect(self, change=lambda key, body: None, retired=True):
        parser = Snapshots(self.documents, 1 << 30)
        for key, headers, value in self.messages:
            body = json.loads(value)
            change(key, body)
            parser.take(Message(key, headers, json.dumps(body).encode()))
        (found,) = parser.finish()
        joined = Joined.of(found.documents, self.documents)
        population = Population(joined, self.documents, self.counted)
        expect_population(found.bodies, population, found.retired if retired else None)


@pytest.mark.parametrize("seed", range(60))
def test_populations_follow_from_the_states_of_their_documents(seed):
    Fleet(seed, labelled=seed % 5 > 0).expect()


def numbers(body):
    """Places of all numbers in the body of a method."""
    lists = {name: each for name, each in body.items() if type(each) is list and name != "documents"}
    found = [
        (name, i) for name, each in lists.items() for i, one in enumerate(each) if type(one) in (int, float)
    ]
    return [*found, ("sum",), ("standard_error",)]


@pytest.mark.parametrize("seed", range(6))
def test_a_changed_number_of_a_population_is_detected(seed):
    fleet = Fleet(seed + 100)
    fleet.expect()
    for key, _, value in fleet.messages:
        if not key.startswith("all/"):
            continue
        step = 1e-4 if "power" in key else 1e-6
        for place in numbers(json.loads(value)):

            def change(at, body, key=key, place=place, step=step):
                if at == key:
                    for name in place[:-1]:
                        body = body[name]
                    body[place[-1]] += 1 if type(body[place[-1]]) is int or "tolerance" in place[0] else step

            with pytest.raises(Difference):
                fleet.expect(change)


def move(body):
    first, second = body["documents"][:2]
    if first["reports"] > 1:
        first["reports"], second["reports"] = first["reports"] - 1, second["reports"] + 1


def test_changed_documents_of_a_population_are_detected():
    fleet = next(fleet for seed in range(99) if (fleet := Fleet(seed, 3)).reports[0] > 1 < fleet.reports[1])
    for why, change in {
        "additive": lambda key, body: body.pop("additive", None) if key == "all/norm-sub" else None,
        "variance_share": lambda key, body: (
            body["documents"][0].update(variance_share=0.5) if key == "head" else None
        ),
        "retired": lambda key, body: body["documents"][1].update(retired=True) if key == "head" else None,
        "partitions": lambda key, body: body["documents"][1].update(partitions=0) if key == "head" else None,
        "schema": lambda key, body: body.update(schema=1) if key.startswith("all") or key == "head" else None,
        "labels": lambda key, body: body["labels"].reverse() if key == "domain" else None,
        "belong to documents": lambda key, body: body["fingerprints"].reverse() if key == "domain" else None,
        "head lists": lambda key, body: move(body) if key.startswith("all") else None,
    }.items():
        with pytest.raises(Difference, match=why):
            fleet.expect(change)

    def moved(key, body):
        if key != "domain":
            move(body)
        if key == "head":
            weights = dict.fromkeys(fleet.documents, 1.0)
            for one in body["documents"]:
                p, q = (float(x) for x in (oracle_of(fleet, one).p, oracle_of(fleet, one).q))
                weights[one["fingerprint"]] = one["reports"] * q * (1 - q) / (p - q) ** 2
            for one in body["documents"]:
                one["variance_share"] = weights[one["fingerprint"]] / sum(weights.values())

    with pytest.raises(Difference, match="reports of document"):
        fleet.expect(moved)


def oracle_of(fleet, one):
    return next(each.oracle for each in fleet.streams if each.fingerprint.hex() == one["fingerprint"])


def test_rows_have_the_reports_of_each_label():
    fleets = (Fleet(seed) for seed in range(99))
    fleet = next(each for each in fleets if each.taken.known is not None and 0 in each.taken.known)
    size, queries = fleet.taken.known.size, [one.query for one in fleet.taken.bodies["base"].sets]
    places = snapshot.slots(["base", "norm-sub"], size, [*queries, TopQuery("most", 2)], size)
    rows = {row.key: row.value for row in snapshot.encode_rows(fleet.taken, places) if row.value}
    head = json.loads(fleet.messages[0][2])
    head["rows"] = {"topic": "rows", "methods": ["base", "norm-sub"], "ranks": {"": size}, "older": None}
    messages = [Message(*each) for each in fleet.messages]
    assert len({json.loads(value)["n"] for value in rows.values()}) > 1
    assert differing(head, rows, lambda: messages) is None
    for key, value in rows.items():
        other = json.loads(value)
        changed = rows | {key: json.dumps(other | {"n": other["n"] + 1}).encode()}
        assert "n of the row" in differing(head, changed, lambda: messages)
