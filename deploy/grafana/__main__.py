"""The dashboards of Grafana, written from what `frequencies` and `operations` say.

python -m deploy.grafana         writes dashboards/ldp-frequencies.json and dashboards/ldp-operations.json
"""

import json
from collections.abc import Iterator
from pathlib import Path

from deploy.grafana.frequencies import frequencies
from deploy.grafana.operations import operations

FOLDER = Path(__file__).parent / "dashboards"


def files() -> Iterator[tuple[Path, str]]:
    """Each dashboard's file, and what is to be in it."""
    for dashboard in (operations(), frequencies()):
        text = json.dumps(dashboard, indent=2, ensure_ascii=False)
        yield FOLDER / f"{dashboard['uid']}.json", f"{text}\n"


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
