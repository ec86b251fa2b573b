"""Output of a worker for a changed document; a head of another program breaks nothing."""

import hashlib

import pytest

import ldp
from worker.counting.changed import changes, remedy

BEFORE = ldp.Stream("s", ldp.GRR("3/2", 3), labels=["a", "b", "c"])


def named(now, text=None):
    text = BEFORE.hashed.decode() if text is None else text
    return changes(ldp.Fleet((now,)), {hashlib.sha256(text.encode()).hexdigest()[:8]: text})


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (ldp.Stream("other", BEFORE.oracle, BEFORE.labels), []),
        (ldp.Stream("s", ldp.GRR("2", 3), BEFORE.labels), ['epsilon: "3/2" → "2"']),
        (ldp.Stream("s", BEFORE.oracle), ["labels: SHA-256 fa1844c2… → none"]),
        (
            ldp.Stream("s", ldp.OLH("3/2", 4, g=4)),
            [
                "domain_size: 3 → 4",
                "g: none → 4",
                'hash: none → "mul32"',
                "labels: SHA-256 fa1844c2… → none",
                'protocol: "grr" → "olh"',
            ],
        ),
    ],
)
def test_each_changed_field_is_named(now, said):
    assert named(now) == said


def test_the_last_recorded_document_is_compared():
    now, older = ldp.Stream("s", ldp.GRR("2", 3)), ldp.Stream("s", ldp.OLH("2", 3))
    assert changes(ldp.Fleet((now,)), {}) == []
    recorded = {each.fingerprint.hex(): each.hashed.decode() for each in (older, BEFORE)}
    assert changes(ldp.Fleet((now,)), recorded) == named(now)
    assert changes(ldp.Fleet((older,)), recorded) == []


def test_values_of_a_forged_document_are_truncated_and_escaped():
    text = BEFORE.hashed.decode().replace('"3/2"', '"\\u001b[31m' + "x" * 1000 + '"')
    (line,) = named(BEFORE, text)
    assert line.isprintable()
    assert len(line) < 200


def test_only_a_changed_document_needs_another_topic():
    assert "another name and another topic" in remedy(ldp.Fleet((BEFORE,)), {"00c0ffee": "{}"})
    assert "another topic" not in remedy(
        ldp.Fleet((BEFORE,)), {BEFORE.fingerprint.hex(): BEFORE.hashed.decode()}
    )
    assert "another topic" not in remedy(ldp.Fleet((BEFORE,)), {})
