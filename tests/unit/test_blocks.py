"""Each code block of the documents runs in a test, or the table has the reason why not."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import ldp
from ldp.browsers import confidence_frame
from ldp.cli import cli
from tests.support.docs import NAMES, ROOT, every_block
from worker.config import load

READER = "tests/integration/operation/test_readme.py"
DIAGRAM, BENCHMARK = "is a diagram", "is a benchmark, and prints the numbers of this machine"
BLOCKS = {
    "README.md": {
        "pip install": "installs packages; make package installs the wheel in the same way",
        "{ yes red": READER,
        "value   base": READER,
        " device": DIAGRAM,
        "[kafka]": READER,
        "ldp-worker create-topics": READER,
        "stream=": READER,
        "import json\nimport os\nfrom kafka": READER,
    },
    "explanation/populations": {".venv/bin/python -m tests.long.fleets": BENCHMARK},
    "explanation/privacy-and-trust": dict.fromkeys(
        ("ldp document", "topics.json"), "tests/unit/ldp/test_ledger.py"
    ),
    "explanation/statistics": {".venv/bin/python -m tests.long.coverage": BENCHMARK},
    "explanation/when-to-use-something-else": {"ldp plan": READER},
    "guides/browsers-and-explicit-channels": dict.fromkeys(
        ("[[streams]]", "ldp document"), "tests/unit/test_blocks.py"
    ),
    "guides/choose-a-protocol": {".venv/bin/python -c": READER},
    "guides/client-conformance": {"ldp audit-client": "audits the reader's own client"},
    "guides/databases": {
        "ldp-worker rows >": READER,
        "pip install": "needs the reader's Postgres; tests/integration/publishing/test_rows.py runs the sink",
        "ldp-worker rows --connect": READER,
        ".venv/bin/python -m tests.bench": BENCHMARK,
    },
    "guides/javascript-client": {
        **dict.fromkeys(("cp", "[gateway]"), "tests/integration/page/test_page.py"),
        "import { Client": "needs a browser; tests/unit/ldp/test_javascript_budget.py uses this store in Chromium",
        "import { upload": "needs a gateway; tests/unit/ldp/test_upload.py calls the function in Node",
        "<script": "needs a bundler or this map; tests/integration/test_ohttp_client.py imports the same packages",
        "npm install": "installs a package; tests/support/javascript/package.json has the same version",
        "import { oblivious": "tests/integration/test_ohttp_client.py",
        "import { confidenceFrame": "needs a browser; tests/unit/ldp/test_browsers.py calls both functions",
        "python -m tests.bench": BENCHMARK,
    },
    "guides/read-snapshots": {"curl": READER, "const response": READER, "ldp-worker watch": READER},
    "guides/receive-reports": {
        **dict.fromkeys(
            (
                "[[streams]]",
                "ldp-worker create-topics",
                "STREAM=",
                "import json",
                "ldp-worker ohttp",
                "[gateway",
            ),
            "tests/integration/kafka/test_gateway.py",
        ),
        "limit_req_zone": "is a part of the reader's configuration of nginx",
    },
    "guides/segments": {"documents =": "tests/unit/worker/test_configured_documents.py"},
    "guides/send-reports": {".venv/bin/python -m tests.bench": BENCHMARK},
    "guides/spark-and-beam": {
        ".venv/bin/python -c": BENCHMARK,
        "import json": "tests/support/engines/readme.py",
        "import apache_beam": "tests/support/engines/readme.py",
    },
    "guides/windows": {"[[streams]]": READER, "ldp-worker create-topics": READER},
    "internals/architecture": {"topic of reports": DIAGRAM},
    "internals/partition-lifecycle": {"           _adopt": DIAGRAM},
    "ldp/clients/javascript/README.md": {
        "<button": "tests/integration/page/test_page.py",
        "import { Client }": "tests/unit/ldp/test_javascript_client.py",
    },
    "ldp/examples/README.md": {
        "python ldp/examples/snapshots.py": READER,
        "": "tests/unit/ldp/test_examples.py",
    },
    "operate/capacity": {
        ".venv/bin/ldp plan": READER,
        ".venv/bin/python -m deploy.sizing": READER,
        ".venv/bin/python -m tests.bench": BENCHMARK,
    },
    "operate/dashboards": {
        "alerting:": "is a part of the reader's configuration of Prometheus",
        "route:": "is a part of the reader's configuration of Alertmanager",
    },
    "operate/deploy": {"docker": "needs a container engine; make containers builds and runs both"},
    "operate/kubernetes": {
        "docker build": "needs a cluster; tests/unit/deploy/test_kubernetes.py checks the manifests",
        "# mine/kustomization.yaml": "tests/unit/deploy/test_kubernetes.py",
        "grep": "needs a cluster; tests/unit/deploy/test_kubernetes.py checks the manifests",
    },
    "operate/retention-and-backup": {
        "redis-cli": "runs at the reader's Redis; tests/integration/redis/test_backup.py takes the same steps",
        "redis-server": "runs at the reader's Redis; tests/integration/redis/test_backup.py takes the same steps",
    },
    "operate/secure": {"TO=": "tests/support/harness/rights.py"},
    "reference/cli-ldp": {"printf": READER, "": "tests/unit/test_reference.py"},
    "reference/cli-ldp-analysis": {"": "tests/unit/test_reference.py"},
    "reference/cli-ldp-worker": {"": "tests/unit/test_reference.py"},
    "reference/configuration-streams": {"documents =": "tests/unit/worker/test_configured_documents.py"},
    "reference/http-api": {"location /": "is a part of the reader's configuration of nginx"},
    "reference/state-files": {"ldp aggregate": READER},
    "tutorials/change-and-slice": {"": READER},
    "tutorials/files-only": {
        "{ yes red": "tests/long/packaging/__main__.py",
        "file:": "tests/unit/ldp/test_files.py",
        "from pathlib": "tests/unit/ldp/test_files.py",
        "CREATE TABLE": "tests/unit/ldp/test_counts.py",
        "WITH": "tests/unit/ldp/test_counts.py",
    },
    "tutorials/first-stream": {"printf": READER},
}
"""By page, the beginning of blocks, and the file that runs them or the reason why no test does."""


@pytest.mark.parametrize("name", NAMES)
def test_each_block_runs_in_a_test_or_has_a_reason(name):
    listed, used = BLOCKS.get(name, {}), set()
    for language, text in every_block(name):
        if language == "pycon":  # tests/unit/ldp/test_pages.py runs them
            continue
        beginning = next((beginning for beginning in listed if text.startswith(beginning)), None)
        assert beginning is not None, f"run this block in a test, or add the reason why not: {text}"
        used.add(beginning)
    assert used == {*listed}
    for file in {place for place in listed.values() if place.endswith(".py") and " " not in place}:
        assert name in (ROOT / file).read_text(encoding="utf-8"), file


def test_each_page_of_the_table_exists():
    assert {*NAMES} >= {*BLOCKS}


def test_the_configurations_of_browser_channels_are_valid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = every_block("guides/browsers-and-explicit-channels")
    for line in dict(blocks)["sh"].splitlines():
        command, path = line.removeprefix("ldp ").split(" > ")
        Path(path).write_text(CliRunner().invoke(cli, shlex.split(command)).stdout, encoding="utf-8")
    Path("worker.toml").write_text("\n".join(text for language, text in blocks if language == "toml"))
    topics, navigation = load(Path("worker.toml"), {}).streams
    assert topics.fleet.documents[0].oracle == ldp.Unary("0.75", "0.1", 100)
    assert navigation.fleet.labels == ("low", "high")
    for document, rate in zip(navigation.fleet.documents, (0.4994798, 0.2), strict=True):
        frame = confidence_frame(navigation.fleet.documents, {"value": "low", "randomizedTriggerRate": rate})
        assert frame == b"\x01" + document.fingerprint + b"\x00"


def test_a_page_has_no_address_of_a_broker_in_code():
    """A reader whose broker is elsewhere sets one variable, or a key of the configuration."""
    for name in NAMES:
        for language, text in every_block(name):
            if language in {"python", "pycon", "javascript", "js"} and "localhost:9092" in text:
                assert 'os.environ.get("LDP_WORKER_KAFKA__BOOTSTRAP_SERVERS", "localhost:9092")' in text
