"""A hung thread: the watchdog ends the process, so that its supervisor starts another one."""

import subprocess
import sys

HANGS = """
import sys, time
from pathlib import Path
from worker import config
from worker.service import run
from worker.service.stream import StreamWorker

class Hanging(StreamWorker):
    def _serve(self):
        time.sleep(3600)

run.StreamWorker, run._STUCK_SECONDS = Hanging, 0.5
run.compiling.warm = run.records.warm = run.lateness.warm = lambda *_: None
sys.exit(run.run(config.load(Path(sys.argv[1]), {})))
"""
LOADS = """
import os, signal, sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
from worker import config
from worker.service import run
from worker.service.stream import StreamWorker

class Beating(StreamWorker):
    def _serve(self):
        print("serving:", answer("/healthz"))  # before it says itself that it lives
        os.kill(os.getpid(), signal.SIGTERM)
        while not self._stopping.wait(0.05):
            self.progress.heartbeat()
            self.progress.publisher_heartbeat()

listen = run.health.listen
def listening(config, registry, healthy, *rest):
    listening.workers, listening.server = healthy.__self__._workers, listen(config, registry, healthy, *rest)
    return listening.server

def answer(path):
    try:
        return urlopen(f"http://127.0.0.1:{listening.server.server_port}{path}").status
    except HTTPError as error:
        return error.code, error.read().decode()

def warm(_):
    print("loading:", answer("/healthz"), answer("/readyz"))
    for worker in listening.workers:  # it took long
        worker.progress.heartbeat_at = worker.progress.publisher_heartbeat_at = -10.0 * run._STUCK_SECONDS

run.StreamWorker, run.health.listen = Beating, listening
run.compiling.warm, run.records.warm, run.lateness.warm = warm, lambda: None, lambda: None
sys.exit(run.run(config.load(Path(sys.argv[1]), {})))
"""
TOML = """
http.port = 0
[[streams]]
name = "s"
topic = "t"
protocol = "grr"
epsilon = "1"
domain_size = 3
"""


def test_a_process_with_a_hanging_poll_thread_exits_and_logs_the_stack(tmp_path):
    toml = tmp_path / "worker.toml"
    toml.write_text(TOML)
    done = subprocess.run(
        [sys.executable, "-c", HANGS, toml], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "worker.stuck" in done.stdout + done.stderr
    assert "_serve" in done.stderr  # the stack of each thread


def test_compiling_kernels_is_not_stuck_and_readiness_reports_it(tmp_path):
    toml = tmp_path / "worker.toml"
    toml.write_text(TOML)
    done = subprocess.run(
        [sys.executable, "-c", LOADS, toml], capture_output=True, text=True, timeout=120, check=False
    )
    said = done.stdout + done.stderr
    assert 'loading: 200 (503, \'{"streams": {"s": "compiling kernels or ' in done.stdout, said
    assert "serving: 200\n" in done.stdout, said
    assert "worker.stuck" not in said
    assert done.returncode == 0, said
