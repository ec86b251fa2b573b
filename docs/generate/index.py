"""Index of all pages, with their titles."""

import re
from pathlib import Path

from docs.generate.markdown import GENERATED

DOCS = Path(__file__).parents[1]
SHELVES = {
    "tutorials": ("Tutorials: learn by doing", "install first-stream change-and-slice files-only notebook"),
    "guides": (
        "Guides: solve one task",
        "send-reports receive-reports javascript-client read-snapshots choose-a-protocol choose-a-method windows"
        " segments"
        " databases spark-and-beam browsers-and-explicit-channels client-conformance poisoning",
    ),
    "operate": (
        "Operate: run it in production",
        "production-checklist deploy kubernetes redis secure capacity retention-and-backup change-a-stream"
        " dashboards troubleshoot runbook runbook-records runbook-uploads",
    ),
    "reference": (
        "Reference: look it up",
        "configuration configuration-streams topics-and-messages http-api wire-format wire-format-coins"
        " state-files cli-ldp-worker cli-ldp cli-ldp-analysis metrics alerts log-events errors failures"
        " failures-kafka failures-redis failures-output-topics failures-worker failures-records failures-uploads"
        " broker-errors",
    ),
    "explanation": (
        "Explanation: understand it",
        "when-to-use-something-else exactly-once snapshots windows statistics populations privacy-and-trust audit"
        " threat-model",
    ),
    "internals": (
        "Internals: change it",
        "architecture packages partition-lifecycle storage-format import benchmarks",
    ),
    "contributing": ("Contributing: write for it", "style glossary"),
}
"""Heading and pages of each folder, in the order of the index."""


def page() -> str:
    """Returns the index of all pages."""
    lines = [
        GENERATED,
        "",
        "# Documentation",
        "",
        "The [README](../README.md) has a quick start and links by reader.",
    ]
    for folder, (heading, names) in SHELVES.items():
        lines += ["", f"## {heading}", ""]
        for name in names.split():
            text = (DOCS / folder / f"{name}.md").read_text(encoding="utf-8")
            title = re.search(r"(?m)^# (.+)$", text)
            assert title, name
            lines.append(f"- [{title[1]}]({folder}/{name}.md)")
    return "\n".join(lines) + "\n"
