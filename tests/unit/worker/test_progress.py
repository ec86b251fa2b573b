"""Readiness means progress: failures that last too long are named, and recoveries are forgotten."""

import pytest
import redis
from kafka import errors as kafka_errors

from worker.counting.ports import Unavailable
from worker.kafka.client import errors
from worker.observe.progress import READY_TIMEOUT_SECONDS, SERVING, Progress, Step
from worker.store.redis import RedisStore


@pytest.fixture
def now():
    return [100.0]


@pytest.fixture
def progress(now):
    progress = Progress(lambda: now[0])
    progress.state = SERVING
    return progress


def pass_time(progress, now, seconds):
    now[0] += seconds
    progress.heartbeat()


def fail(progress, step):
    with pytest.raises(Unavailable), progress.attempt(step):
        raise Unavailable("Redis: no", "start it")


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.SERVE])
def test_a_step_that_fails_for_too_long_is_named(progress, now, step):
    for _ in range(5):
        fail(progress, step)
        assert progress.describe() == SERVING
        pass_time(progress, now, READY_TIMEOUT_SECONDS / 5)
    assert progress.describe() == SERVING
    fail(progress, step)
    pass_time(progress, now, 1)
    assert (
        progress.describe()
        == f"{step.value} has failed for {READY_TIMEOUT_SECONDS + 1:.0f} s: Redis: no. Remedy: start it"
    )
    with progress.attempt(step):
        pass
    assert progress.describe() == SERVING


def test_a_failure_recorded_within_a_turn_belongs_to_that_turn(progress, now):
    for _ in range(3):
        progress.failed(Step.COMMIT, "Redis: OutOfMemoryError")
        progress.over(Step.COMMIT)
        pass_time(progress, now, READY_TIMEOUT_SECONDS)
    assert progress.describe().startswith(
        "committing counts has failed for 60 s: Redis: OutOfMemoryError. Remedy: "
    )
    progress.over(Step.COMPARE)
    assert progress.describe() != SERVING
    progress.over(Step.COMMIT)
    assert progress.describe() == SERVING


def test_a_success_resets_the_failure_time_of_a_step(progress, now):
    for _ in range(5):
        fail(progress, Step.LOOK)
        pass_time(progress, now, 0.9 * READY_TIMEOUT_SECONDS)
        with progress.attempt(Step.LOOK):
            pass
        assert progress.describe() == SERVING


def test_silence_counts_as_missing_progress(progress, now):
    now[0] += READY_TIMEOUT_SECONDS + 3
    assert progress.describe().startswith("no step has finished for 23 s")
    progress.heartbeat()
    assert progress.describe() == SERVING


def test_a_retried_error_is_reported_at_once(progress, now):
    progress.failed(Step.SERVE, "CorruptRecordError: bad")
    assert progress.describe().startswith("serving has failed for 0 s: CorruptRecordError: bad. Remedy: ")
    progress.error = "StateLost: gone"
    assert progress.describe() == "StateLost: gone"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (kafka_errors.KafkaTimeoutError("no answer"), "start the brokers"),
        (
            kafka_errors.KafkaTimeoutError("Failed to update metadata after 10 secs."),
            "if topic snapshots is missing",
        ),
        (kafka_errors.ProducerFencedError(), "find the second publisher"),
        (kafka_errors.InvalidProducerEpochError(), "find the second publisher"),
        (kafka_errors.InvalidTimestampError(), "correct the clock of this machine"),
        (kafka_errors.UnsupportedVersionError("InitProducerId"), "use brokers that support transactions"),
        (
            kafka_errors.UnknownTopicOrPartitionError(),
            "run ldp-worker create-topics: it creates topic snapshots",
        ),
        (kafka_errors.TransactionalIdAuthorizationFailedError(), "grant this user the missing right"),
        (kafka_errors.GroupAuthorizationFailedError(), "grant this user the missing right"),
        (kafka_errors.UnsupportedCompressionTypeError(), "set snapshots.compression to a codec"),
        (kafka_errors.NotEnoughReplicasError(), "start the brokers that hold replicas of topic snapshots"),
        (kafka_errors.CoordinatorNotAvailableError(), "internal topics"),
        (kafka_errors.MessageSizeTooLargeError(), "raise max.message.bytes of topic snapshots"),
        (kafka_errors.UnknownError("Unknown"), "run ldp-worker check"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("step", [Step.CLAIM, Step.COMMIT, Step.PUBLISH])
def test_the_remedy_of_a_kafka_error_does_not_depend_on_the_step(progress, now, step, error, remedy):
    said = said_of(progress, now, step, errors.unavailable(error, "publishing to", "snapshots"))
    assert said.startswith(f"{step.value} has failed for 21 s: Kafka: publishing to topic 'snapshots': ")
    assert remedy in said.partition(". Remedy: ")[2]
    assert "Redis" not in said


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (redis.TimeoutError("Timeout reading from socket"), "start Redis"),
        (redis.ConnectionError("Connection refused"), "start Redis"),
        (redis.exceptions.OutOfMemoryError("command not allowed"), "free memory in Redis"),
        (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), "a replica"),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), "check the disk"),
        (redis.exceptions.NoPermissionError("no permissions"), "ACL SETUSER"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("step", [Step.CLAIM, Step.COMMIT, Step.PUBLISH])
def test_the_remedy_of_a_redis_error_does_not_depend_on_the_step(progress, now, step, error, remedy):
    class Failing:
        def pipeline(self, **_settings):
            raise error

    with pytest.raises(Unavailable) as raised:
        RedisStore(Failing(), "emoji").peek(0)
    said = said_of(progress, now, step, raised.value)
    assert said.startswith(f"{step.value} has failed for 21 s: Redis: {type(error).__name__}: ")
    assert remedy in said.partition(". Remedy: ")[2]
    assert "broker" not in said and "create-topics" not in said


def said_of(progress, now, step, error):
    progress.failed(step, str(error), error.remedy)
    pass_time(progress, now, READY_TIMEOUT_SECONDS + 1)
    return progress.describe()


def test_an_error_without_a_remedy_points_to_check(progress, now):
    said = said_of(progress, now, Step.CLAIM, Unavailable("Kafka: odd"))
    assert "has failed for 21 s: Kafka: odd. Remedy: run ldp-worker check, " in said
