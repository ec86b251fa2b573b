"""Events of the core as users see them: names, facts and levels in the log, metrics, and readiness."""

import inspect

import numpy as np
import pytest
import structlog

import ldp
from ldp.query import SetQuery
from ldp.snapshot import Cut, Period, take
from tests.support.cells import key_in
from worker.counting.partition_state import PartitionState
from worker.counting.ports import Answer, Events, Unavailable
from worker.counting.rules import RecordLimits, RequestedRule
from worker.counting.windows import Windowing
from worker.observe.events import StreamEvents
from worker.observe.metrics import Metrics
from worker.observe.progress import READY_TIMEOUT_SECONDS, SERVING, Progress, Step

NO = Unavailable("Redis: no", "mend it")
STREAM = ldp.Stream("s", ldp.GRR("1", 2))
ENDS = ("low", "high", "anytime_low", "anytime_high")
ESTIMATE = STREAM.oracle.estimate(np.array([30, 10]), 40)
CUT = Cut({0: 7}, {0: [(2, 4)]})
TAKEN = take(STREAM, ESTIMATE, CUT, 6, [SetQuery("both", (0, 1))], methods=["base", "norm"])
CASES = {
    "info": (("stream.finished",), ("info", "stream.finished", {}), {}),
    "warning": (("topic.missing",), ("warning", "topic.missing", {}), {}),
    "claimed": (
        (3, "resume", 7, 2),
        ("info", "partition.claimed", {"partition": 3, "start": "resume", "offset": 7, "epoch": 2}),
        {("claims_total", "start", "resume"): 1},
    ),
    "claim_failed": (
        ([1, 2], NO),
        ("warning", "claim.retry", {"partitions": [1, 2], "error": "Redis: no", "remedy": "mend it"}),
        {("errors_total", "step", "claim"): 1},
    ),
    "gap_found": (
        (3, 2, 4),
        ("warning", "partition.gap", {"partition": 3, "lost_from": 2, "lost_to": 4}),
        {},
    ),
    "counted": (
        (5, 2, {"9f86d081": 7, "8e9f39d0": 2}),
        None,
        {
            ("records_total", "outcome", "accepted"): 5,
            ("records_total", "outcome", "rejected"): 2,
            ("reports_total",): 9,
            ("document_reports_total", "document", "9f86d081"): 7,
            ("document_reports_total", "document", "8e9f39d0"): 2,
        },
    ),
    "poisoned": (
        ("ones", 4096, "270 ones a report"),
        ("warning", "reports.poisoned", {"test": "ones", "reports": 4096, "found": "270 ones a report"}),
        {("alarms_total", "test", "ones"): 1},
    ),
    "with_key_or_headers": ((4,), None, {("records_with_key_or_headers_total",): 4}),
    "malformed": (
        ({"json": 3}, 2),
        None,
        {("rejected_total", "reason", "json"): 3, ("dead_letters_left_out_total",): 2},
    ),
    "commit_ended": (
        (Answer.CONFLICT, 0.25),
        None,
        {
            ("commits_total", "verdict", "conflict"): 1,
            ("commit_seconds_sum",): 0.25,
            ("commit_seconds_count",): 1,
        },
    ),
    "commit_failed": (
        (NO,),
        ("warning", "commit.retry", {"error": "Redis: no", "remedy": "mend it"}),
        {("errors_total", "step", "commit"): 1},
    ),
    "compare_failed": (
        (NO,),
        ("warning", "compare.retry", {"error": "Redis: no", "remedy": "mend it"}),
        {("errors_total", "step", "compare"): 1},
    ),
    "late_or_undated": (
        ({"1m": 2, "older": 1}, 4, 2),
        None,
        {
            ("late_records_total", "age", "1m"): 2,
            ("late_records_total", "age", "older"): 1,
            ("undated_records_total",): 4,
            ("dead_letters_left_out_total",): 2,
        },
    ),
    "dropped": ((3,), None, {("partition_lag", "partition", "3"): None}),
    "released": (
        (3,),
        ("info", "partition.released", {"partition": 3}),
        {("partition_lag", "partition", "3"): None},
    ),
    "publishing": ((True,), None, {("publisher",): 1}),
    "documents_unnamed": (
        (["9f86d081"], "list it"),
        ("warning", "documents.unnamed", {"documents": ["9f86d081"], "remedy": "list it"}),
        {("documents_unnamed",): 1},
    ),
    "published": (
        (TAKEN, 1.5, 0.25),
        ("info", "snapshot.published", {"sequence": 6, "reports": 40, "complete": False}),
        {
            ("snapshots_total",): 1,
            ("snapshot_sequence",): 6,
            ("snapshot_reports",): 40,
            ("snapshot_total_frequency",): pytest.approx(1),
            ("snapshot_standard_error",): ESTIMATE.sigma,
            ("snapshot_sum_deviation",): 1.5,
            ("segment_rest_ratio",): 0.25,
            ("snapshot_incomplete_partitions", "cause", "gap"): 1,
        },
    ),
    "windows_closed": (
        ({"1h": 3_600_000, "24h": 0}, 5_400_500),
        None,
        {
            ("window_closed_timestamp_seconds", "window", "1h"): 3600,
            ("window_closed_timestamp_seconds", "window", "24h"): 0,
            ("window_delay_seconds", "window", "1h"): 1800.5,
            ("window_delay_seconds", "window", "24h"): 5400.5,
        },
    ),
    "compared": (
        (Period("1h", 3_600_000, 7_200_000, True), 3, ["warm"]),
        ("info", "window.compared", {"window": "1h", "start": 3_600_000, "values": 3, "queries": ["warm"]}),
        {
            ("window_changed_values", "window", "1h"): 3,
            ("window_changed_queries", "window", "1h"): 1,
        },
    ),
    "checked": ((0.5,), None, {("snapshot_seconds_sum",): 0.5, ("snapshot_seconds_count",): 1}),
    "publish_failed": (
        (NO,),
        ("warning", "snapshot.retry", {"error": "Redis: no", "remedy": "mend it"}),
        {("errors_total", "step", "publish"): 1},
    ),
    "ticked": ((), None, {}),
    "recommend_failed": (
        (6, ValueError("odd")),
        ("warning", "recommend.failed", {"sequence": 6, "error": "ValueError: odd"}),
        {("errors_total", "step", "recommend"): 1},
    ),
}
"""Event -> its arguments, the log line, and the changed metrics."""
FAILING = {
    "claim_failed": Step.CLAIM,
    "commit_failed": Step.COMMIT,
    "compare_failed": Step.COMPARE,
    "publish_failed": Step.PUBLISH,
}


class Listening:
    """A stream's events, with everything that they reach."""

    def __init__(self):
        self.now, self.metrics = 0.0, Metrics()
        self.progress = Progress(lambda: self.now)
        self.progress.state = SERVING
        self.metrics.begin("s", ["9f86d081"])
        self.metrics.lag.labels("s", "3").set(5)
        self.events = StreamEvents(
            "s", self.metrics, self.progress, structlog.get_logger("test"), lambda: self.now
        )

    def samples(self):
        return {
            (sample.name.removeprefix("ldp_worker_"), frozenset(sample.labels.items())): sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name.startswith("ldp_worker_") and not sample.name.endswith("_bucket")
        }


def keyed(name, *labels):
    said = {"stream": "s"} | dict(zip(labels[::2], labels[1::2], strict=True))
    return name, frozenset(said.items())


def test_every_event_has_a_test_case():
    verbs = {name for name, _ in inspect.getmembers(Events, inspect.isfunction) if not name.startswith("_")}
    assert CASES.keys() == verbs


@pytest.mark.parametrize("verb", CASES)
def test_each_event_has_its_log_line_and_metrics(verb):
    arguments, line, metrics = CASES[verb]
    listening = Listening()
    before = listening.samples()
    with structlog.testing.capture_logs() as logged:
        getattr(listening.events, verb)(*arguments)
    if line is None:
        assert logged == []
    else:
        level, event, facts = line
        assert logged == [{"event": event, "log_level": level} | facts]
    after = listening.samples()
    for key, value in metrics.items():
        assert after.get(keyed(*key)) == value
    touched = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    also = {
        "published": {
            keyed("snapshot_complete"),
            keyed("snapshot_incomplete_partitions", "cause", "uncounted"),
            *(key for key in after if key[0].startswith(("snapshot_query_", "snapshot_value_"))),
        },
        "publishing": {keyed("snapshot_age_seconds")},
        "checked": {keyed("snapshot_age_seconds")},
    }
    assert touched - also.get(verb, set()) == {keyed(*key) for key in metrics}


@pytest.mark.parametrize("verb", CASES)
def test_readiness_depends_only_on_retried_steps(verb):
    listening = Listening()
    getattr(listening.events, verb)(*CASES[verb][0])
    listening.now = READY_TIMEOUT_SECONDS + 1
    listening.progress.heartbeat()
    said = listening.progress.describe()
    if verb in FAILING:
        assert said.startswith(f"{FAILING[verb].value} has failed for 21 s: Redis: no. Remedy: mend it")
    else:
        assert said == SERVING


@pytest.mark.parametrize("verb", ["gap_found", "released"])
def test_dead_letters_of_released_partitions_do_not_fail_readiness(verb):
    listening = Listening()
    listening.progress.failed(Step.DEAD_LETTERS, "no topic")
    listening.progress.over(Step.DEAD_LETTERS)
    listening.now = READY_TIMEOUT_SECONDS + 1
    listening.progress.heartbeat()
    assert listening.progress.describe() != SERVING
    getattr(listening.events, verb)(*CASES[verb][0])
    assert listening.progress.describe() == SERVING


def test_a_repeated_publishing_failure_is_logged_once_a_minute():
    listening = Listening()

    def logged(error):
        with structlog.testing.capture_logs() as lines:
            listening.events.publish_failed(error)
        return len(lines)

    assert [logged(NO), logged(NO), logged(Unavailable("Kafka: no", "wait")), logged(NO), logged(NO)] == [
        1,
        0,
        1,
        1,
        0,
    ]
    listening.now = 59.0
    assert logged(NO) == 0
    listening.now = 60.0
    assert [logged(NO), logged(NO)] == [1, 0]
    listening.events.checked(None)  # published in between
    assert logged(NO) == 1
    assert listening.samples()[keyed("errors_total", "step", "publish")] == 9


def test_a_successful_tick_clears_a_publishing_failure():
    listening = Listening()
    for _ in range(3):
        listening.events.publish_failed(NO)
        listening.events.ticked()
        listening.progress.publisher_heartbeat()  # as it does again and again within a tick that takes long
        listening.now += 11
        listening.progress.heartbeat()
    assert listening.progress.describe().startswith("publishing has failed for 33 s")
    listening.events.ticked()
    assert listening.progress.describe() == SERVING


def test_an_attempt_without_an_answer_is_timed_and_not_counted():
    listening = Listening()
    listening.events.commit_ended(None, 0.5)
    listening.events.checked(None)
    samples = listening.samples()
    assert samples[keyed("commit_seconds_count")] == 1
    assert sum(value for (name, _), value in samples.items() if name == "commits_total") == 0
    assert keyed("snapshot_seconds_count") not in samples


def test_the_age_of_a_snapshot_uses_a_monotonic_clock(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1e9)
    listening, age = Listening(), keyed("snapshot_age_seconds")
    listening.now = 7.0
    listening.events.publishing(False)
    assert age not in listening.samples()  # from a process that has never published
    listening.events.publishing(True)
    listening.now = 37.0
    listening.events.publishing(True)
    assert listening.samples()[age] == 30  # since it took over, although it has not published yet
    listening.events.checked(None)
    listening.now = 50.0
    assert listening.samples()[age] == 13
    listening.events.publishing(False)
    listening.events.publishing(True)
    assert listening.samples()[age] == 13  # taking over again makes no snapshot newer


def test_the_failure_time_of_a_step_is_exported_between_rare_attempts():
    listening, failing = Listening(), keyed("step_failing_seconds", "step", "publish")
    assert {dict(labels)["step"] for name, labels in listening.samples() if name == failing[0]} == {
        step.name.lower() for step in Step
    }
    for _ in range(4):
        listening.events.publish_failed(NO)
        listening.events.ticked()
        listening.now += 31
    assert listening.samples()[failing] == 4 * 31
    listening.events.ticked()
    assert listening.samples()[failing] == 0


def test_missing_reports_of_a_snapshot_are_exported_by_cause():
    listening = Listening()
    taken = take(STREAM, ESTIMATE, Cut({0: 7}, {0: [(2, 4)]}, [1, 2]), 6, [], methods=["base"])
    listening.events.published(taken, 0.0)
    samples = listening.samples()
    assert samples[keyed("snapshot_incomplete_partitions", "cause", "gap")] == 1
    assert samples[keyed("snapshot_incomplete_partitions", "cause", "uncounted")] == 2


def test_every_partition_is_exported_for_every_owner():
    listening = Listening()
    listening.metrics.capacity({}, {"s": {0: (2, 9, 5), 1: (0, 4, 0)}})
    samples = listening.samples()
    for name, offsets in (("first", (2, 0)), ("end", (9, 4)), ("group", (5, 0))):
        for partition, offset in enumerate(offsets):
            assert samples[keyed(f"partition_{name}_offset", "partition", str(partition))] == offset
    listening.metrics.capacity({}, {})
    assert not any("_offset" in name and name != "partition_offset" for name, _ in listening.samples())


def test_removed_windows_are_not_shown():
    listening = Listening()
    listening.events.windows_closed({"1h": 0, "24h": 0}, 1000)
    listening.events.compared(Period("24h", 0, 86_400_000, True), 3, [])
    listening.events.windows_closed({"1h": 5000}, 4000)
    shown = {key: value for key, value in listening.samples().items() if key[0].startswith("window_")}
    assert shown == {
        keyed("window_closed_timestamp_seconds", "window", "1h"): 5,
        keyed("window_delay_seconds", "window", "1h"): 0,
    }


def test_window_progress_of_a_partition_is_exported():
    windowing = Windowing(("all", "1h"), grace=0, max_out_of_orderness=0)
    configured = RequestedRule(limits=RecordLimits(1, hamming_weight=True, windowing=windowing))
    state = PartitionState.fresh(ldp.Fleet((STREAM,)), 0, configured)
    listening = Listening()

    def shown():
        listening.events.panes(3, state)
        said = {
            name: listening.samples()[keyed(name, "partition", "3")]
            for name in ("partition_closed_timestamp_seconds", "partition_panes")
        }
        return [
            *said.values(),
            *(
                listening.samples()[keyed("partition_waiting", "partition", "3", "reason", reason)]
                for reason in ("admission", "room")
            ),
        ]

    assert shown() == [0, 0, 1, 0]
    state.windows.admit(7_200_000)
    assert shown() == [7200, 0, 0, 0]
    for hour in range(windowing.most_panes):
        state.cell(key_in(state, f"{hour * 3_600_000}+3600000"))
    assert shown() == [7200, windowing.most_panes, 0, 1]
    listening.events.released(3)
    assert not [key for key in listening.samples() if ("partition", "3") in key[1]]


def test_every_counter_of_a_stream_is_0_before_its_first_event():
    metrics = Metrics()
    metrics.begin("s", ["9f86d081"])
    counters = {
        family.name: family
        for family in metrics.registry.collect()
        if family.type == "counter" and family.name.startswith("ldp_worker_")
    }
    for name, family in counters.items():
        values = [sample.value for sample in family.samples if sample.name.endswith("_total")]
        assert values, name
        assert set(values) == {0}, name
