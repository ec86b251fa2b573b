"""What the peers in `packages.py` do. It runs in their environment, which has nothing of this project.

The first line of stdin is a JSON object: ``epsilon``, ``d``, and ``reports``, a list of [bucket, seed]. Each further
line names a function below; the answer is a line of JSON with what it returns.
"""

import json
import sys

from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Aggregator_MI  # type: ignore[import-not-found]
from pure_ldp.frequency_oracles.local_hashing import LHServer  # type: ignore[import-not-found]

Reports = list[tuple[int, int]]


def pure_ldp(epsilon: float, d: int, reports: Reports) -> list[int]:
    """The counts of all values."""
    server = LHServer(epsilon, d, use_olh=True, index_mapper=int)
    for report in reports:
        server.aggregate(report)
    return [int(count) for count in server.aggregated_data]


def multi_freq_ldpy(epsilon: float, d: int, reports: Reports) -> list[float]:
    """The estimates of all values, clipped at 0 and scaled to sum to 1."""
    estimates: list[float] = LH_Aggregator_MI(reports, d, epsilon).tolist()
    return estimates


def main() -> None:
    """Answers until stdin ends."""
    task = json.loads(sys.stdin.readline())
    epsilon, d = task["epsilon"], task["d"]
    reports = [(bucket, seed) for bucket, seed in task["reports"]]
    for line in sys.stdin:
        print(json.dumps(globals()[line.strip()](epsilon, d, reports)), flush=True)


if __name__ == "__main__":
    main()
