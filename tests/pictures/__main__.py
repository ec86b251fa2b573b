"""Pictures of both dashboards, for deploy/README.md, drawn from what a real Prometheus says of real workers.

python -m tests.pictures             plays the scene, six minutes, and writes deploy/grafana/*.png
python -m tests.pictures --again     draws once more what was measured last
"""

import argparse
import json
from pathlib import Path

from tests.dashboards import DASHBOARDS
from tests.pictures import asking, drawing, scene

MEASURED = Path("build/pictures.json")
FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"


def main() -> None:
    """Plays, asks and draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--again", action="store_true", help="draw what was measured last")
    if not parser.parse_args().again:
        with scene.played() as (scraper, begin, end):
            measured = {
                name: asking.asked(dashboard, scraper, scene.NAME, begin, end)
                for name, dashboard in DASHBOARDS.items()
            }
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_text(json.dumps(measured), encoding="utf-8")
    for name, shown in json.loads(MEASURED.read_text(encoding="utf-8")).items():
        drawing.draw(shown, FOLDER / f"{name}.png")


if __name__ == "__main__":
    main()
