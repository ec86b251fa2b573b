"""Expected rows, computed from the JSON bodies on the snapshot topic."""

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from tests.support.harness.foreign import Message
from worker.config.rows import TOP

KEY = ("stream", "window_name", "window_start", "method", "query", "rank")
REST = ("value", "label", "estimate", "low", "high", "window_end", "n", "sequence", "final", "complete")
Told = dict[tuple[Any, ...], tuple[Any, ...]]
"""Key columns -> other columns."""


def due(messages: Collection[Message], methods: Sequence[str], top: int = TOP) -> Told:
    """Returns the expected rows of domains without chunks."""
    newest = {message.key: message.value for message in messages}
    labels, bodies = dict[str, Any](), dict[tuple[str, ...], dict[str, Any]]()
    for key, value in newest.items():
        stream, *where = key.split("/")
        if value and where == ["domain"]:
            labels[stream] = json.loads(value)["labels"]
        elif value and len(where) > 1 and where[0] != "released":
            bodies.setdefault((stream, *where[:-1]), {})[where[-1]] = json.loads(value)
    told: Told = {}
    for said in bodies.values():
        base = said["base"]["frequencies"]
        order = sorted(range(len(base)), key=lambda v: (-base[v], v))[:top]
        for method in methods:
            told |= _of(said[method], order, labels.get(said[method]["stream"]))
    return told


def _of(body: Mapping[str, Any], order: Sequence[int], labels: Sequence[str] | None) -> Told:
    """Returns the rows of one method of one window."""
    window = body["window"]
    place = body["stream"], window["name"], _milli(window["start"]) or 0, body["method"]
    end, shared = (
        _milli(window["end"]),
        (body["reports"], body["sequence"], window["final"], body["complete"]),
    )

    def row(value: int | None, *numbers: float | None) -> tuple[Any, ...]:
        label = None if value is None or labels is None else labels[value]
        return value, label, *numbers, end, *shared

    def ends(of: Mapping[str, Any], i: int) -> list[float | None]:
        return [of[end][i] if end in of else None for end in ("low", "high")]

    told: Told = {
        (*place, "", i + 1): row(v, body["frequencies"][v], *ends(body, v)) for i, v in enumerate(order)
    }
    for one in body["queries"]:
        told[*place, one["name"], 1] = row(None, one["frequency"], one.get("low"), one.get("high"))
    for one in body["top"]:
        for i, v in enumerate(one["values"]):
            told[*place, one["name"], i + 1] = row(v, one["frequencies"][i], *ends(one, i))
    return told


def _milli(date: str | None) -> int | None:
    return None if date is None else round(1000 * datetime.fromisoformat(date).timestamp())


def flat(messages: Collection[Message]) -> Told:
    """Returns the rows on the rows topic."""
    newest = {message.key: message.value for message in messages}
    told: Told = {}
    for key, value in newest.items():
        if value:
            said, place = json.loads(value), json.loads(key)
            assert list(place) == list(KEY)
            assert place.items() <= said.items()
            told[tuple(place.values())] = tuple(said[column] for column in REST)
    return told
