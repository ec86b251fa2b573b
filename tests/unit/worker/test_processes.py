"""Several processes behind one parent: one answer for all, starts and ends; the processes here are stand-ins."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib import request
from urllib.error import HTTPError

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from worker.cli import cli
from worker.observe import merged
from worker.service import processes
from worker.service.processes import Processes

ROOT = Path(__file__).parents[3]
STAND_IN = """
import json, os, signal, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from worker.service.children import Parent

folder, (number, line) = Path(sys.argv[1]), map(int, sys.argv[-2:])
(folder / f"pid-{number}").write_text(str(os.getpid()))
told = folder / f"exit-{number}"
if told.exists():
    os._exit(int(told.read_text()))
if (folder / f"slow-{number}").exists():
    time.sleep(600)
ended = threading.Event()
hears = not (folder / f"deaf-{number}").exists()
signal.signal(signal.SIGTERM, lambda *_: hears and ended.set())

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        metrics = self.path == "/metrics"
        self.send_response(503 if (folder / f"stuck-{number}").exists() and not metrics else 200)
        self.end_headers()
        said = f"# TYPE mark gauge\\nmark {10 + number}\\n# EOF\\n" if metrics else json.dumps({"number": number})
        self.wfile.write(said.encode())

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
parent = Parent(line)
parent.serving(server.server_port)
parent.on_gone(ended.set)
while not ended.wait(0.05):
    pass
os._exit(int((folder / "code").read_text()) if (folder / "code").exists() else 0)
"""


def until(condition, turn=lambda: None):
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        turn()
        time.sleep(0.02)
    return found


def gone(pid):
    """Whether a process has ended, even if its exit code is unread."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return [sys.executable, "-c", STAND_IN, str(tmp_path)]


@pytest.fixture
def start(command, monkeypatch):
    """Starts a number of stand-ins, and waits until they answer; ends them with the test."""
    monkeypatch.setattr(processes, "_FIRST_RETRY", 0.05)
    monkeypatch.setattr(processes, "_ANSWER_SECONDS", 60.0)
    started = []

    def start(count=2, *, ready=True):
        group = Processes(count, command)
        started.append(group)
        group.turn()
        if ready:
            until(lambda: group.ready()[0], group.turn)
        return group

    yield start
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.0)
    for group in started:
        group.stop()


def known(folder, number):
    """Whether a stand-in has reported its id."""
    file = folder / f"pid-{number}"
    return file.exists() and file.read_text()


def pid(folder, number):
    return int((folder / f"pid-{number}").read_text())


# --- one scrape for all -----------------------------------------------------------------------------------------------


ODD = 'a "quoted" \\ b\n{c="d"} # 1, 2'


def shown(scale):
    """Metrics of a process in both formats; all numbers of another process differ."""
    registry = CollectorRegistry()
    counter = Counter("records_total", "Records,\nby outcome.", ("stream", "outcome"), registry=registry)
    counter.labels(ODD, "accepted").inc(3 * scale)
    counter.labels(ODD, "rejected").inc(2**53)
    gauge = Gauge("lag", "Lag.", ("stream", "partition"), registry=registry)
    gauge.labels("emoji", str(scale)).set(0.1 * scale)
    seconds = Histogram("seconds", "Time.", ("stream",), buckets=(0.5, 5), registry=registry)
    for observed in (0.1, 1 * scale, 10 * scale):
        seconds.labels("emoji").observe(observed)
    Gauge("nothing", "Of which there is no sample.", ("stream",), registry=registry)
    return choose_encoder(merged.ACCEPTS)[0](registry).decode(), generate_latest(registry).decode()


def samples(text):
    """All samples of the classic text form."""
    found = [
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("silent", [None, 0, 1])
def test_a_scrape_has_all_samples_and_each_family_once(silent):
    both = [shown(1), shown(7)]
    asked = [None if number == silent else text for number, (text, _) in enumerate(both)]
    registry = merged.registry(lambda: asked, lambda: [0, 4])
    text = generate_latest(registry).decode()
    expected = {
        (name, labels | {("process", str(number))}, value)
        for number, (_, classic) in enumerate(both)
        if number != silent
        for name, labels, value in samples(classic)
    }
    for number, restarts in enumerate((0.0, 4.0)):
        labels = frozenset({("process", str(number))})
        expected |= {
            ("ldp_worker_process_up", labels, float(number != silent)),
            ("ldp_worker_process_restarts_total", labels, restarts),
        }
    assert samples(text) == expected
    for kind in ("HELP", "TYPE"):
        heads = [line.split()[2] for line in text.splitlines() if line.startswith(f"# {kind} ")]
        assert len(heads) == len(set(heads))
        assert {"records_total", "lag", "seconds", "nothing"} <= set(heads)
    assert "# TYPE seconds histogram" in text
    assert "# TYPE records_total counter" in text
    openmetrics = choose_encoder(merged.ACCEPTS)[0](registry).decode()
    assert openmetrics.count("# EOF") == 1
    assert openmetrics.count("# TYPE records counter") == 1


def test_a_scrape_without_answers_shows_all_processes_down():
    text = generate_latest(merged.registry(lambda: [None] * 3, lambda: [0] * 3)).decode()
    assert {value for name, _, value in samples(text) if name == "ldp_worker_process_up"} == {0.0}
    assert len(samples(text)) == 6


# --- probes and ends --------------------------------------------------------------------------------------------------


def up(group):
    return [None if text is None else float(text.split("\nmark ")[1].split()[0]) for text in group.metrics()]


def test_probes_combine_the_answers_of_all_processes(start, tmp_path):
    group = start(3)
    assert up(group) == [10, 11, 12]
    facts = {"processes": {str(number): {"number": number} for number in range(3)}}
    assert group.ready() == group.healthy() == (True, facts)
    (tmp_path / "stuck-1").touch()  # it answers 503
    assert group.ready() == group.healthy() == (False, facts)
    (tmp_path / "stuck-1").unlink()
    assert group.stop() == 0
    assert all(gone(pid(tmp_path, number)) for number in range(3))
    assert up(group) == [None] * 3


def test_a_silent_process_is_named_and_hides_no_other(start, tmp_path, monkeypatch):
    group = start(2)
    monkeypatch.setattr(processes, "_ANSWER_SECONDS", 0.2)
    os.kill(pid(tmp_path, 0), signal.SIGSTOP)
    try:
        until(lambda: up(group) == [None, 11])
        said = {"processes": {"0": "does not answer", "1": {"number": 1}}}
        until(lambda: group.healthy() == (False, said))
        until(lambda: group.ready() == (False, said))
    finally:
        os.kill(pid(tmp_path, 0), signal.SIGCONT)
    until(lambda: up(group) == [10, 11])


def test_a_dead_process_restarts_with_growing_delays(start, tmp_path, monkeypatch):
    group = start(2)
    first, other = pid(tmp_path, 0), pid(tmp_path, 1)
    os.kill(first, signal.SIGKILL)
    until(lambda: group.restarts() == [1, 0] and group.ready()[0], group.turn)
    assert pid(tmp_path, 0) != first
    assert pid(tmp_path, 1) == other
    monkeypatch.setattr(processes, "_LONGEST_RETRY", 0.4)
    (tmp_path / "exit-0").write_text("7")
    os.kill(pid(tmp_path, 0), signal.SIGKILL)
    waits = []

    def turn():
        group.turn()
        if (
            "exit code 7" in (state := group.ready()[1]["processes"]["0"])
            and group.restarts()[0] > len(waits) + 1
        ):
            waits.append(state)

    until(lambda: group.restarts()[0] >= 5, turn)
    assert waits
    assert all("ended with exit code 7; starts again after" in wait for wait in waits)
    assert up(group) == [None, 11]
    assert not group.ready()[0]
    assert group.healthy()[0]  # which is no reason to end the other
    (tmp_path / "exit-0").unlink()
    until(lambda: group.ready()[0], group.turn)
    assert not group.refused()


def test_restart_delays_double_up_to_a_limit_and_reset_later(command, tmp_path, monkeypatch):
    (tmp_path / "exit-0").write_text("1")
    process = processes.Process(0, command, 1)
    now = [1000.0]
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    waits = []
    process._began = now[0]
    for _ in range(9):
        process._put_off("ended")
        waits.append(process._due - now[0])
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    now[0] += 61
    process._put_off("ended")
    assert process._due - now[0] == 1


def test_a_process_that_cannot_start_is_retried(tmp_path):
    group = Processes(1, [str(tmp_path / "none")])
    group.turn()
    assert group.ready() == (
        False,
        {"processes": {"0": "could not be started (No such file or directory); starts again after 1 s"}},
    )
    assert group.stop() == 0


def test_a_wrong_configuration_exits_2(start, tmp_path):
    (tmp_path / "exit-1").write_text("2")
    group = start(2, ready=False)
    until(group.refused, group.turn)
    assert group.stop() == 2
    assert gone(pid(tmp_path, 0))
    assert group.restarts() == [0, 0]


def test_a_process_that_does_not_stop_is_killed(start, tmp_path, monkeypatch):
    (tmp_path / "deaf-1").touch()
    group = start(2)
    monkeypatch.setattr(processes, "_STOP_SECONDS", 1.0)
    assert group.stop() == 1
    assert all(gone(pid(tmp_path, number)) for number in range(2))


def test_a_starting_process_stops_at_once_without_a_failure(start, tmp_path, monkeypatch):
    (tmp_path / "slow-1").touch()
    group = start(2, ready=False)
    until(
        lambda: known(tmp_path, 1) and group.healthy()[1]["processes"]["0"] != "starting",
        group.turn,
    )
    assert group.ready() == (False, {"processes": {"0": {"number": 0}, "1": "starting"}})
    assert group.healthy()[0]
    monkeypatch.setattr(processes, "_STOP_SECONDS", 60.0)
    began = time.monotonic()
    assert group.stop() == 0
    assert time.monotonic() - began < 55
    assert gone(pid(tmp_path, 1))


def test_the_first_process_prepares_the_others(start, tmp_path):
    (tmp_path / "slow-0").touch()
    group = start(2, ready=False)
    until(lambda: known(tmp_path, 0), group.turn)
    group.turn()
    assert group._all[1]._running is None
    assert group.ready() == (False, {"processes": {"0": "starting", "1": "starting"}})
    (tmp_path / "slow-0").unlink()
    (tmp_path / "exit-0").write_text("7")
    os.kill(pid(tmp_path, 0), signal.SIGKILL)
    until(lambda: group.ready()[1]["processes"]["1"] == {"number": 1}, group.turn)  # who else would count?


@pytest.mark.parametrize(("count", "told"), [(1, None), (2, None), (64, None), (2, "5")])
def test_all_processes_together_use_the_threads_of_one(command, monkeypatch, count, told):
    for variable in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
        if told is not None:
            monkeypatch.setenv(variable, told)
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda _: set(range(6)))
    environ = Processes(count, command)._all[-1]._environ
    expected = told or {1: "6", 2: "3", 64: "1"}[count]
    assert (environ["OMP_NUM_THREADS"], environ["NUMBA_NUM_THREADS"]) == (expected, expected)


# --- the parent as a process ------------------------------------------------------------------------------------------


PARENT = """
import sys
from worker.config import parse
from worker.observe import logs
from worker.service import processes
logs.configure()
processes._ANSWER_SECONDS = 60.0
sys.exit(processes.run(parse(sys.argv[1]), 2, sys.argv[2:]))
"""
TOML = (
    'http.port = 0\n[[streams]]\nname = "s"\ntopic = "t"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
)


@pytest.fixture
def parent(command, tmp_path):
    """A parent with two stand-ins that serve, and what it logged so far."""
    log = tmp_path / "log"
    with (
        log.open("wb") as err,
        subprocess.Popen([sys.executable, "-c", PARENT, TOML, *command], stderr=err) as process,
    ):

        def events():
            return [json.loads(line) for line in log.read_text().splitlines()]

        try:
            until(lambda: log.read_text().count("process.started") == 2)
            yield process, events
        finally:
            process.kill()


def serves(tmp_path, events):
    """Waits until both stand-ins answer, as the parent shows them."""
    port = events()[0]["port"]

    def said():
        with (
            contextlib.suppress(OSError),
            request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=180) as reply,
        ):
            return reply.status == 200

    until(said)
    with request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=180) as reply:
        return reply.read().decode()


def test_the_parent_exports_and_stops_all_processes(parent, tmp_path):
    process, events = parent
    text = serves(tmp_path, events)
    assert 'mark{process="0"} 10.0' in text
    assert 'mark{process="1"} 11.0' in text
    assert 'ldp_worker_process_up{process="1"} 1.0' in text
    first = events()[0]
    assert (first["event"], first["processes"], first["streams"]) == ("worker.started", 2, ["s"])
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)  # changes nothing
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert all(gone(pid(tmp_path, number)) for number in range(2))
    assert events()[-1]["event"] == "worker.stopped"
    assert events()[-1]["codes"] == [0, 0]


# --- the option -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["0", "65", "-1", "two"])
@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_wrong_number_of_processes_exits_2(tmp_path, given, by):
    (tmp_path / "worker.toml").write_text(TOML, encoding="utf-8")
    arguments = ["run", "--config", str(tmp_path / "worker.toml")]
    options = ["--processes", given] if by == "option" else []
    environ = {} if by == "option" else {"LDP_WORKER_PROCESSES": given}
    result = CliRunner(env=environ).invoke(cli, arguments + options)
    assert result.exit_code == 2
    assert given in result.stderr
    assert "1<=x<=64" in result.stderr or "valid integer" in result.stderr
    assert "--processes" in result.stderr


@pytest.mark.long
def test_each_process_uses_the_same_installation_and_names_its_number(tmp_path):
    (tmp_path / "worker.toml").write_text(
        f'kafka.bootstrap_servers = "127.0.0.1:1"\n{TOML}', encoding="utf-8"
    )
    (tmp_path / "worker.py").write_text(
        "raise SystemExit('this is no worker')"
    )  # the module that python -m finds in the folder
    log = tmp_path / "log"
    with (
        log.open("wb") as err,
        subprocess.Popen(
            [Path(sys.executable).with_name("ldp-worker"), "run"],
            cwd=tmp_path,
            env=os.environ | {"LDP_WORKER_PROCESSES": "2"},
            stderr=err,
        ) as process,
    ):
        try:
            until(lambda: "worker.started" in log.read_text())
            url = f"http://127.0.0.1:{json.loads(log.read_text().splitlines()[0])['port']}/healthz"

            def said():
                try:
                    with request.urlopen(url, timeout=180) as reply:
                        return json.load(reply)["processes"]
                except HTTPError as error:  # 503: on a busy machine a process may not answer in time
                    return json.load(error)["processes"]

            until(lambda: all(isinstance(facts, dict) for facts in said().values()))
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event.get("process") for event in events if event["event"] == "worker.started"] == [None, 0, 1]
    assert {event.get("process") for event in events if event["event"] == "worker.stopped"} == {0, 1, None}
    assert events[-1]["codes"] == [0, 0]


@pytest.mark.parametrize(("process", "said"), [(3, {"process": 3}), (None, {})])
def test_each_log_line_names_its_process_even_for_libraries(process, said):
    code = (
        "import logging, structlog; from worker.observe import logs\n"
        f"logs.configure(process={process})\n"
        "structlog.get_logger('worker').info('ours'); logging.getLogger('kafka').warning('theirs')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["ours", "theirs"]
    assert [{key: line[key] for key in line if key == "process"} for line in lines] == [said, said]
