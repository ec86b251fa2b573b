"""A thread that hangs: the watchdog ends the process, so that whoever supervises it starts another one."""

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
run.kernels.warm = run.records.warm = run.lateness.warm = lambda: None
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


def test_a_process_whose_polling_thread_hangs_ends_itself_and_says_where(tmp_path):
    toml = tmp_path / "worker.toml"
    toml.write_text(TOML)
    done = subprocess.run(
        [sys.executable, "-c", HANGS, toml], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "worker.stuck" in done.stdout + done.stderr
    assert "_serve" in done.stderr  # where each thread is
