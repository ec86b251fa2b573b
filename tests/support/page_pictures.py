"""Pictures of the page, for README.md, as the demo shows it.

make demo KEEP=1                                       prints the page's address, and a command that sends more reports
python -m tests.support.page_pictures http://localhost:9464    writes deploy/page/*.png, of the page there
"""

import argparse
from pathlib import Path

from tests.support.chromium import launched

FOLDER = Path(__file__).parents[2] / "deploy" / "page"
LOOKS = {
    "values": ("", "light"),
    "windows": ("#stream=emoji&method=norm-sub&window=6h", "dark"),
}
"""Pictures by page and colour scheme."""


def main() -> None:
    """Looks, and draws."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", help="where a worker of the demo answers")
    address = parser.parse_args().address.rstrip("/") + "/"
    with launched() as browser:
        for name, (looked_at, colours) in LOOKS.items():
            page = browser.new_page(
                viewport={"width": 1280, "height": 1010},
                color_scheme="dark" if colours == "dark" else "light",
                reduced_motion="reduce",
            )
            page.goto(address + looked_at)
            page.wait_for_selector("#values tbody tr")
            page.wait_for_timeout(6000)  # rates cover some seconds
            page.screenshot(path=FOLDER / f"{name}.png")
            page.close()


if __name__ == "__main__":
    main()
