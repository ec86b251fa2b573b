"""`ldp-worker audit` of several streams."""

import json

import pytest
from click.testing import CliRunner

from worker.audit import AuditError, PartitionVerdict, StreamVerdict
from worker.cli import cli

EQUAL = PartitionVerdict(0, 0, 9, 0, 9, 9)
DELETED = PartitionVerdict(0, 0, 9, 0, 5, 5, deleted=[(0, 4)])
DIFFERENT = PartitionVerdict(0, 0, 9, 0, difference="late: 3 in Redis, 0 recounted")
STREAM = (
    '[[streams]]\nname = "{0}"\ntopic = "{0}-reports"\nprotocol = "grr"\nepsilon = "1"\ndomain_size = 3\n'
)


@pytest.fixture
def audit(tmp_path, monkeypatch):
    """Runs the command on streams with these verdicts, or none."""

    def run(*verdicts, arguments=()):
        names = [f"s{n}" for n in range(len(verdicts))]
        (tmp_path / "w.toml").write_text("".join(map(STREAM.format, names)))
        coming = dict(zip(names, verdicts, strict=True))

        def verify(served, _config, _move, _on_passed):
            if (verdict := coming[served.name]) is None:
                raise AuditError("nothing can be read")
            return StreamVerdict(served.name, (verdict,))

        monkeypatch.setattr("worker.audit.verify", verify)
        monkeypatch.setattr("worker.cli.audit.reach", lambda config, topic: None)
        return CliRunner().invoke(cli, ["audit", "--config", str(tmp_path / "w.toml"), *arguments])

    return run


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((EQUAL, EQUAL), 0),
        ((EQUAL, DELETED), 3),
        ((DELETED, DIFFERENT, EQUAL), 1),
        ((DELETED, None), 1),
        ((DELETED,), 3),
        ((None,), 1),
    ],
)
def test_the_exit_code_is_the_gravest(audit, verdicts, code):
    assert audit(*verdicts).exit_code == code


def test_each_stream_has_a_line(audit):
    said = audit(EQUAL, None, DIFFERENT)
    assert said.stdout.splitlines() == [
        "s0: equal: 9 reports in 9 records, 0 malformed",
        "s2: different in partition 0",
    ]
    assert "s1: nothing can be read" in said.stderr


def test_json_output_of_several_streams_is_a_list(audit):
    def printed(*verdicts, more=()):
        return json.loads(audit(*verdicts, arguments=["--json", *more]).stdout)

    assert [each["stream"] for each in printed(EQUAL, EQUAL)] == ["s0", "s1"]
    assert printed(EQUAL, EQUAL, more=["--stream", "s1"])["stream"] == "s1"
    assert printed(EQUAL)["stream"] == "s0"
