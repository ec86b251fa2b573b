"""Describes parameters, progress and snapshots of streams as JSON."""

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from ldp.oracles.explicit import ExplicitChannel
from ldp.snapshot import LATE, part_of, whole_of
from worker.config import Config, Served
from worker.kafka.snapshots.follower import Follower
from worker.kafka.snapshots.index import IndexEntry, Key

RATE_SECONDS = 10.0
"""Period over which a rate is measured."""
_FRESH_SECONDS = 1.0
"""Lifetime of collected metrics, which all clients share."""
_READ_METRICS = {
    "ldp_worker_reports_total",
    "ldp_worker_records_total",
    "ldp_worker_rejected_total",
    "ldp_worker_partition_lag",
    "ldp_worker_partition_owned",
}
Facts = Mapping[str, object]


@dataclass
class _Counted:
    """Metrics of one stream."""

    reports: float = 0.0
    accepted: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    lag: int | None = None
    here: set[int] = field(default_factory=set)


class Streams:
    """Documents of all configured streams."""

    def __init__(
        self,
        config: Config,
        registry: CollectorRegistry,
        ready: Callable[[], tuple[bool, Facts]],
        snapshots: Follower,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._registry, self._ready = config, registry, ready
        self._snapshots, self._clock = snapshots, clock
        # with `fewest_new`, a snapshot waits for reports and not for the interval
        every = None if config.snapshots.fewest_new else config.snapshots.every_seconds
        self._constants = {
            served.name: _constant_part(served) | {"every_seconds": every} for served in config.streams
        }
        self._lock = threading.Lock()
        self._counted: tuple[float, dict[str, _Counted]] | None = None
        self._before: deque[tuple[float, dict[str, float]]] = deque()

    def document(self, part: str = "") -> list[dict[str, Any]]:
        """Returns the document of each stream, in the configuration's order.

        `part`: the name of a part, whose windows are listed, too.
        """
        counted = self._count()
        states = _states(self._ready()[1])
        streams = [self._stream(served, counted, states) for served in self._config.streams]
        for stream in streams:
            if part and whole_of(part) == stream["name"] != part:
                there = {key: entry for key, entry in self._snapshots.newest(part).items() if entry.methods}
                stream["part"] = {"name": part, "available": _available(stream["windows"], there)}
        return streams

    def _stream(
        self, served: Served, all_counted: Mapping[str, _Counted], states: Mapping[str, str]
    ) -> dict[str, Any]:
        stream, counted = served.stream, all_counted.get(served.name, _Counted())
        names = self._constants[stream.name]["windows"]
        found = self._snapshots.newest(stream.name)
        there = {key: entry for key, entry in found.items() if entry.methods}
        head, newest = found.get(("all", None)), there.get(("all", None))
        published = None if head is None else head.fields.get("published")
        known = set[int]() if head is None else {int(partition) for partition in head.fields["offsets"]}
        return self._constants[stream.name] | {
            "windows": [*names, *([LATE.name] if (LATE.name, None) in there else [])],
            "state": states.get(stream.name, "not known"),
            "rate": self._rate(stream.name),
            "lag": counted.lag,
            "rejected": dict(counted.rejected),
            "accepted": counted.accepted,
            "partitions": {
                str(partition): "here" if partition in counted.here else "elsewhere"
                for partition in sorted(known | counted.here)
            },
            "published": published,
            "privacy_loss": None if head is None else head.fields.get("privacy_loss"),
            "newest": None if newest is None else _newest(newest),
            "available": _available(names, there),
            "parts": [] if head is None else _parts(stream.name, head),
            "hidden": 0 if head is None else head.fields.get("hidden", 0),
        }

    def _count(self) -> dict[str, _Counted]:
        """Collects the metrics at most once per second."""
        with self._lock:
            now = self._clock()
            if self._counted is not None and now - self._counted[0] < _FRESH_SECONDS:
                return self._counted[1]
            counted = _count(self._registry)
            self._counted = now, counted
            self._before.append((now, {name: stream.reports for name, stream in counted.items()}))
            while len(self._before) > 2 and now - self._before[1][0] >= RATE_SECONDS:
                self._before.popleft()
            return counted

    def _rate(self, stream: str) -> float | None:
        """Returns reports per second; None unless samples span 1 to 30 s."""
        with self._lock:
            (then, before), (now, at_last) = self._before[0], self._before[-1]
        if now - then < _FRESH_SECONDS or now - then > 3 * RATE_SECONDS:
            return None
        return max(0.0, at_last.get(stream, 0.0) - before.get(stream, 0.0)) / (now - then)


def _constant_part(served: Served) -> dict[str, Any]:
    stream, windowing = served.stream, served.configured.limits.windowing
    document = stream.document()
    spent = stream.oracle.spent if isinstance(stream.oracle, ExplicitChannel) else document["epsilon"]
    return {
        "name": stream.name,
        "fingerprint": stream.fingerprint.hex(),
        "protocol": document["protocol"],
        "epsilon": spent,
        "domain_size": stream.oracle.domain_size,
        "topic": served.topic,
        "windows": ["all"] if windowing is None else list(windowing.windows),
    }


def _count(registry: CollectorRegistry) -> dict[str, _Counted]:
    counted: dict[str, _Counted] = defaultdict(_Counted)
    for family in registry.collect():
        for sample in family.samples:
            if sample.name not in _READ_METRICS:
                continue
            labels, value = sample.labels, sample.value
            stream = counted[labels["stream"]]
            if sample.name.endswith("reports_total"):
                stream.reports += value
            elif sample.name.endswith("records_total"):
                stream.accepted += int(value) if labels["outcome"] == "accepted" else 0
            elif sample.name.endswith("rejected_total"):
                stream.rejected[labels["reason"]] += int(value)
            elif sample.name.endswith("lag"):
                stream.lag = (stream.lag or 0) + int(value)
            elif value:
                stream.here.add(int(labels["partition"]))
    return dict(counted)


def _states(facts: Facts) -> dict[str, str]:
    """Returns each stream's state; prefers a process that is not serving.

    Example:
        >>> _states({"streams": {"s": "serving"}})
        {'s': 'serving'}
        >>> _states({"processes": {"0": {"streams": {"s": "serving"}}, "1": {"streams": {"s": "joining"}}}})
        {'s': 'process 1: joining'}
    """
    processes = facts.get("processes")
    if not isinstance(processes, Mapping):
        streams = facts.get("streams")
        return dict(streams) if isinstance(streams, Mapping) else {}
    states: dict[str, str] = {}
    for number, process in processes.items():
        for name, state in (process["streams"] if isinstance(process, Mapping) else {}).items():
            if states.get(name, "serving") == "serving":
                states[name] = state if state == "serving" else f"process {number}: {state}"
    return states


def _newest(entry: IndexEntry) -> dict[str, Any]:
    return {name: entry.fields.get(name) for name in ("sequence", "reports", "complete", "standard_error")}


def _parts(stream: str, head: IndexEntry) -> list[dict[str, Any]]:
    """Returns the documents, if there are several, and the published segments."""
    documents, segments = head.fields.get("documents", {}), head.fields.get("segments", {})
    return [
        {"name": part_of(stream, document=name), "document": name} | facts
        for name, facts in documents.items()
        if len(documents) > 1
    ] + [
        {"name": part_of(stream, segment=name), "segment": name, "reports": reports}
        for name, reports in segments.items()
    ]


def _available(names: list[str], there: Mapping[Key, IndexEntry]) -> dict[str, list[Any]]:
    available: dict[str, list[Any]] = {name: [] for name in names}
    for _, entry in sorted(there.items(), key=lambda item: item[0][1] or 0):
        window = entry.window
        available.setdefault(window.name, []).append(
            None
            if window.start is None
            else {
                "start": window.start,
                "end": window.end,
                "final": window.final,
                "reports": entry.fields["reports"],
                "complete": entry.fields["complete"],
            }
        )
    return available
