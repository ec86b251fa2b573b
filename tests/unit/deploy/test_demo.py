"""The demo's decisions: when it continues, and when it ends."""

import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from deploy.demo import demo

OURS = {"LDP_WORKER_GATEWAY__PORT": "3"}


@pytest.fixture(autouse=True)
def _ctrl_c():
    """Ctrl-C works, also if a shell began the tests in its background, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def workers(tmp_path):
    """Two workers that only sleep; both end with the test."""
    workers = demo.Workers(tmp_path, {})
    log = tmp_path / "log"
    log.write_text('{"event": "worker.started", "port": 1}\n')
    for number in (1, 2):
        process = subprocess.Popen(["sleep", "600"])
        workers.alive.append(demo.Worker(f"worker {number}", process, log))
    with workers:
        yield workers


def clock(sleep):
    """The demo's replacement of `time`: other threads of this process sleep as usual."""
    return SimpleNamespace(sleep=sleep, monotonic=time.monotonic)


def test_a_kept_demo_outlives_a_worker(workers, tmp_path, monkeypatch, capsys):
    first, second = workers.alive
    monkeypatch.setattr(demo.Worker, "ready", lambda _: True)
    turns = []

    def sleep(_):
        turns.append(list(workers.alive))
        if len(turns) == 1:
            second.process.kill()
            second.process.wait()
        elif len(turns) == 4:
            signal.raise_signal(signal.SIGINT)  # Ctrl-C

    monkeypatch.setattr(demo, "time", clock(sleep))
    services = SimpleNamespace(
        kafka=SimpleNamespace(address="127.0.0.1:1"), redis=SimpleNamespace(address="redis://127.0.0.1:2/0")
    )
    demo.stay(OURS, services, workers, tmp_path)
    assert turns == [[first, second], [first], [first], [first]]
    assert first.process.poll() is None
    said = capsys.readouterr().out
    assert (
        said.count(f"worker 2 (process {second.process.pid}) exited with code -9; the others keep running")
        == 1
    )
    assert said.endswith("stopping\n")


def test_an_early_end_of_a_worker_does_not_end_the_demo(workers, tmp_path, monkeypatch, capsys):
    first, second = workers.alive
    first.process.kill()
    first.process.wait()
    monkeypatch.setattr(demo.Worker, "ready", lambda _: True)
    monkeypatch.setattr(demo, "time", clock(lambda _: signal.raise_signal(signal.SIGINT)))
    services = SimpleNamespace(kafka=SimpleNamespace(address="k"), redis=SimpleNamespace(address="r"))
    demo.stay(OURS, services, workers, tmp_path)
    assert workers.alive == [second]
    said = capsys.readouterr().out
    assert f"/ (worker 2, process {second.process.pid})\n" in said
    assert f"worker 1 (process {first.process.pid}) exited with code -9" in said
