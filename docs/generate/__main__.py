"""Writes the documentation pages that are generated from the code."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.generate import (
    alerts,
    asyncapi,
    broker_errors,
    cli,
    configuration,
    errors,
    failures,
    index,
    log_events,
    metrics,
    packages,
    runbook,
    template,
)

REFERENCE = Path(__file__).parents[1] / "reference"
RUNBOOK = ("runbook.md", "runbook-records.md", "runbook-uploads.md")
PAGES: dict[str, Callable[[], str]] = {
    "alerts.md": alerts.page,
    "asyncapi.json": asyncapi.page,
    "cli-ldp.md": cli.ldp_page,
    "cli-ldp-analysis.md": cli.analysis_page,
    "cli-ldp-worker.md": cli.worker_page,
    "configuration.md": configuration.worker,
    "configuration-streams.md": configuration.streams,
    "broker-errors.md": broker_errors.page,
    "errors.md": errors.page,
    "log-events.md": log_events.page,
    "metrics.md": metrics.page,
    **{f"../operate/{name}": partial(runbook.page, name) for name in RUNBOOK},
    "../../worker/config/template.toml": template.page,
    **{name: partial(failures.page, name) for name in failures.NAMES},
    "../internals/packages.md": packages.page,
    "../README.md": index.page,
}
"""The function that returns the text of each page, by file name."""


def main() -> None:
    """Writes every page whose text has changed."""
    for name, text in PAGES.items():
        path, new = (REFERENCE / name).resolve(), text()
        if not path.exists() or path.read_text(encoding="utf-8") != new:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.relative_to(REFERENCE.parents[1])}")


if __name__ == "__main__":
    main()
