"""Fuzzes record batches and JSON frames against other, slower code.

Run as ``python -m tests.long.fuzz``; prints one line each. A difference ends it and is shown.
"""

import argparse
import time
from functools import partial

from tests.long.fuzz import audited, batches, json_frames


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--whole", type=int, default=1_000_000, help="how many whole batches")
    parser.add_argument("--damaged", type=int, default=1_000_000, help="how many damaged ones")
    parser.add_argument(
        "--audited", type=int, default=125_000, help="how many logs of eight, some damaged, for the audit"
    )
    parser.add_argument("--texts", type=int, default=1_000_000, help="how many JSON frames")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for title, fuzz in (
        ("whole batches", partial(batches.fuzz, arguments.whole, batches.whole)),
        ("damaged batches", partial(batches.fuzz, arguments.damaged, batches.harmed)),
        ("batches and records for the audit", partial(audited.fuzz, arguments.audited)),
        ("JSON frames", partial(json_frames.fuzz, arguments.texts)),
    ):
        start = time.process_time()
        told = fuzz(arguments.seed)
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(told.items()))
        print(f"{told.total()} {title}: {outcomes}; {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
