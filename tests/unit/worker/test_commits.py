"""Commits: by time or by the cost of a crash, not too often, and written while counting continues."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from worker.counting.ports import StateLost
from worker.service.commits import LONGEST_SECONDS, REPLAY_SECONDS, SHARE, Commits


class Ownership:
    """Records its calls; `write` takes as long as the test sets."""

    def __init__(self):
        self.calls, self.commits = [], ["commit"]
        self.go = threading.Event()
        self.go.set()
        self.now = 1000.0
        self.takes = self.prepares = 0.0
        self.lost = None
        self.unavailable = False

    def prepare(self):
        self.now += self.prepares
        self.calls.append(("prepare", threading.current_thread() is threading.main_thread()))
        return list(self.commits)

    def write(self, commits):
        assert self.go.wait(30)
        self.now += self.takes
        self.calls.append(("write", threading.current_thread() is threading.main_thread()))
        return [] if self.unavailable else commits

    def settle(self, written):
        self.calls.append(("settle", threading.current_thread() is threading.main_thread()))
        assert written in ([], self.commits)
        if self.lost:
            raise self.lost

    def new(self):
        calls, self.calls = self.calls, []
        return calls


PREPARE, WRITE, SETTLE = ("prepare", True), ("write", False), ("settle", True)


@pytest.fixture
def ownership():
    return Ownership()


@pytest.fixture
def commits(ownership):
    commits = Commits(ownership, 1.0, ThreadPoolExecutor(1), lambda: ownership.now)
    yield commits
    ownership.go.set()


def written(commits):
    """Waits until the pending write is done."""
    commits._writing.result(30)


def turn(commits):
    commits.turn()
    written(commits)


def test_a_commit_is_written_on_its_own_thread_while_counting_continues(ownership, commits):
    ownership.go.clear()
    assert not commits.turn()
    for _ in range(3):
        ownership.now += 5
        assert not commits.turn()  # one at a time
    assert ownership.new() == [PREPARE]
    ownership.go.set()
    written(commits)
    assert commits.turn()
    assert ownership.new()[:2] == [WRITE, SETTLE]


def test_commits_are_scheduled_by_time(ownership, commits):
    turn(commits)
    ownership.now += 0.99
    assert commits.turn()  # it is taken up at once
    assert ownership.new() == [PREPARE, WRITE, SETTLE]
    ownership.now += 0.02
    assert not commits.turn()
    assert ownership.new()[0] == PREPARE


def test_commits_are_scheduled_by_the_replay_time_of_a_crash(ownership):
    commits = Commits(ownership, 3600.0, ThreadPoolExecutor(1), lambda: ownership.now)
    commits.turn()
    commits.settle()
    ownership.new()
    commits.counted(REPLAY_SECONDS - 1)
    assert not commits.turn()
    assert ownership.new() == []
    commits.counted(1.0)
    commits.turn()
    commits.settle()
    assert ownership.new() == [PREPARE, WRITE, SETTLE]
    commits.counted(1.0)
    assert not commits.turn()
    assert ownership.new() == []


def test_writing_takes_at_most_its_share_of_the_time(ownership, commits):
    ownership.takes = 0.7
    turn(commits)
    ownership.now += 1.0
    assert commits.turn()  # the next commit depends only on time, as its duration was unknown
    written(commits)
    begun = ownership.now - ownership.takes
    commits.turn()
    ownership.new()
    ownership.takes = 0.0
    ownership.now = begun + 0.7 / SHARE - 1
    assert not commits.turn()
    assert ownership.new() == []
    ownership.now += 2
    turn(commits)
    assert ownership.new() == [PREPARE, WRITE]


def test_one_slow_write_does_not_delay_commits_for_long(ownership, commits):
    ownership.takes = 44.0
    turn(commits)
    ownership.takes = 0.0
    turn(commits)
    commits.turn()
    ownership.new()
    ownership.now += LONGEST_SECONDS - 1
    commits.turn()
    assert ownership.new() == []
    ownership.now += 2
    turn(commits)
    assert ownership.new() == [PREPARE, WRITE]


def test_waiting_before_a_write_delays_no_commit(ownership, commits):
    ownership.prepares = 8.0  # until the dead letters are acknowledged
    turn(commits)
    ownership.prepares = 0.0
    ownership.now += 1.01
    turn(commits)
    ownership.new()
    ownership.now += 1.01
    turn(commits)
    assert ownership.new() == [SETTLE, PREPARE, WRITE]


def test_an_unanswered_write_delays_no_commit(ownership, commits):
    ownership.takes, ownership.unavailable = 7.0, True
    turn(commits)
    commits.turn()  # it is tried again
    written(commits)
    ownership.takes, ownership.unavailable = 0.0, False
    turn(commits)
    ownership.new()
    ownership.now += 1.01
    turn(commits)
    assert ownership.new() == [SETTLE, PREPARE, WRITE]


def test_a_turn_without_changes_ends_after_preparation(ownership, commits):
    ownership.commits = []
    assert commits.turn()
    assert ownership.new() == [PREPARE]


def test_lost_counts_end_the_polling_thread_only(ownership, commits):
    ownership.lost = StateLost("gone")
    turn(commits)
    with pytest.raises(StateLost):
        commits.turn()
