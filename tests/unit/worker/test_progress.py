"""Ready means that what is due happens: what fails for too long is named, and what is well again is forgotten."""

import re
from pathlib import Path

import pytest

from worker.counting.ports import Unavailable
from worker.observe.progress import READY_TIMEOUT_SECONDS, SERVING, Progress, Step


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
    progress.beat()


def fail(progress, step):
    with pytest.raises(Unavailable), progress.attempt(step):
        raise Unavailable("Redis: no")


@pytest.mark.parametrize("step", [step for step in Step if step is not Step.SERVE])
def test_point_8_a_step_that_fails_for_too_long_is_named(progress, now, step):
    for _ in range(5):
        fail(progress, step)
        assert progress.says() == SERVING
        pass_time(progress, now, READY_TIMEOUT_SECONDS / 5)
    assert progress.says() == SERVING
    fail(progress, step)
    pass_time(progress, now, 1)
    assert (
        progress.says()
        == f"{step.what} has failed for {READY_TIMEOUT_SECONDS + 1:.0f} s (Redis: no): {step.todo}"
    )
    with progress.attempt(step):
        pass
    assert progress.says() == SERVING


def test_point_8_a_failure_told_within_a_turn_is_of_that_turn(progress, now):
    for _ in range(3):
        progress.failed(Step.COMMIT, "Redis: OutOfMemoryError")
        progress.over(Step.COMMIT)
        pass_time(progress, now, READY_TIMEOUT_SECONDS)
    assert progress.says().startswith("committing counts has failed for 60 s (Redis: OutOfMemoryError)")
    progress.over(Step.COMPARE)
    assert progress.says() != SERVING
    progress.over(Step.COMMIT)
    assert progress.says() == SERVING


def test_point_8_a_step_that_went_well_in_between_begins_anew(progress, now):
    for _ in range(5):
        fail(progress, Step.LOOK)
        pass_time(progress, now, 0.9 * READY_TIMEOUT_SECONDS)
        with progress.attempt(Step.LOOK):
            pass
        assert progress.says() == SERVING


def test_point_8_silence_is_no_progress(progress, now):
    now[0] += READY_TIMEOUT_SECONDS + 3
    assert progress.says().startswith("no step has come to its end for 23 s")
    progress.beat()
    assert progress.says() == SERVING


def test_point_10_an_error_that_is_tried_again_is_said_at_once(progress, now):
    progress.failed(Step.SERVE, "CorruptRecordError: bad")
    assert progress.says().startswith("serving has failed for 0 s (CorruptRecordError: bad)")
    progress.error = "StateLost: gone"
    assert progress.says() == "StateLost: gone"


def test_point_8_the_patience_is_stated():
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"has failed for longer than\s+{READY_TIMEOUT_SECONDS:g} seconds", readme)


def test_a_missing_right_is_what_to_grant_whatever_the_step(progress, now):
    for step, why, todo in (
        (Step.SERVE, "GroupAuthorizationFailedError: [Error 30] Not authorized", "by the brokers' ACLs"),
        (Step.PUBLISH, "TransactionalIdAuthorizationFailedError", "by the brokers' ACLs"),
        (Step.COMMIT, "Redis: NoPermissionError", "by ACL SETUSER"),
    ):
        progress.failed(step, why)
        pass_time(progress, now, READY_TIMEOUT_SECONDS + 1)
        assert f"({why}): allow this user" in progress.says() and progress.says().endswith(todo)
        progress.over(step)
        progress.over(step)
