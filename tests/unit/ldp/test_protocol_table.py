"""README's table of protocols against its own command."""

import re
import subprocess
import sys
from pathlib import Path

from ldp.oracles import ORACLES, PROTOCOLS
from tests.support.docs import page

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
SECTION = README[README.index("## Protocols") : README.index("## Methods")]


def test_every_protocol_has_a_row():
    rows = re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE)
    assert rows == ["protocol", *ORACLES]
    (listed,) = re.findall(r"^\| `streams\.protocol` \| \| (.+) \|$", page("reference/configuration-streams"), re.MULTILINE)
    assert re.findall(r"`(\w+)`", listed) == list(PROTOCOLS)


def test_the_variances_are_what_the_command_prints():
    (command,) = re.findall(r"^\.venv/bin/python -c '\n(.*?)'$", SECTION, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=180, check=True
    )
    rows = re.findall(r"^\| `(\w+)` \|.*?\| ([0-9.]+) \| ([0-9.]+) \|", SECTION, re.MULTILINE)
    assert [" ".join(row) for row in rows] == done.stdout.splitlines()
