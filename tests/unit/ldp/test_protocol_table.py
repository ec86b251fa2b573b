"""The table of protocols in docs/guides/choose-a-protocol.md matches its command."""

import re
import subprocess
import sys

from ldp.oracles import ORACLES, PROTOCOLS
from tests.support.docs import page

SECTION = page("guides/choose-a-protocol").partition("## Comparison")[2].partition("\n## ")[0]


def test_every_protocol_has_a_row():
    rows = re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE)
    assert rows == ["protocol", *ORACLES]
    keys = page("reference/configuration-streams")
    (listed,) = re.findall(r"^\| `streams\.protocol` .*? \| (Protocol .+) Required", keys, re.MULTILINE)
    assert re.findall(r"`(\w+)`", listed) == list(PROTOCOLS)


def test_variances_match_the_output_of_the_command():
    (command,) = re.findall(r"^\.venv/bin/python -c '\n(.*?)'$", SECTION, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, timeout=180, check=True
    )
    rows = re.findall(r"^\| `(\w+)` \|.*?\| ([0-9.]+) \| ([0-9.]+) \|", SECTION, re.MULTILINE)
    assert [" ".join(row) for row in rows] == done.stdout.splitlines()
