"""``ldp audit-client --rounds``: a client with a store passes, and faults of the store are found."""

import json
import sys

import pytest
from click.testing import CliRunner

import ldp
from ldp.cli import cli
from ldp.privacy.declaration import Declaration

ORACLES = {"grr": ldp.GRR("1", 4), "oue": ldp.OUE("1", 4), "rappor": ldp.RAPPOR("1/2", "15/16", "1/16", 4)}


def audited(tmp_path, name, noise, fault="", rounds=3, reports=600):
    stream = ldp.Stream("s", ORACLES[name], privacy=Declaration("device", 2, "24h", noise, "30d"))
    path = tmp_path / "document.json"
    path.write_text(json.dumps(stream.document()))
    command = [sys.executable, "-m", "tests.support.stored_client", "{}", "{store}", fault]
    options = ["--rounds", str(rounds), "--reports", str(reports), "--json"]
    done = CliRunner().invoke(cli, ["audit-client", "--document", str(path), *options, "--", *command])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["fresh", "memoised"])
@pytest.mark.parametrize("name", ORACLES)
def test_a_client_with_a_store_passes(name, noise, tmp_path):
    code, found = audited(tmp_path, name, noise, reports=240)
    assert (code, found["verdict"], found["findings"]) == (0, "pass", [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "noise", "fault", "says"),
    [
        ("grr", "fresh", "forgets", "sends more than the document declares, on"),
        ("grr", "memoised", "forgets", "sends more than the document declares, on"),
        ("grr", "fresh", "doubles", "sends more than the document declares"),
        ("grr", "fresh", "halves", "that are left in the period"),
        ("grr", "memoised", "skews", "opens a period again"),
        ("oue", "memoised", "fresh", "memoised reports are equal"),
        ("oue", "fresh", "memoised", "reports equal to the device's first"),
        ("rappor", "memoised", "fresh", "in both reports"),
    ],
)
def test_a_fault_of_the_store_is_found(name, noise, fault, says, tmp_path):
    # 600 coins of RAPPOR miss the fault in one run of eight; 2,400 find it at 10 standard deviations and more
    code, found = audited(tmp_path, name, noise, fault, reports=2_400 if name == "rappor" else 600)
    assert (code, found["verdict"]) == (1, "fail")
    assert any(says in finding for finding in found["findings"]), found["findings"]
