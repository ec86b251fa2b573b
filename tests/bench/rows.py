"""Cost of rows: their bytes, plain and compressed with others, and their encoding compared with the snapshot.

python -m tests.bench.rows
"""

import time

import numpy as np
from kafka.codec import gzip_encode

import ldp
from ldp.snapshot import Cut, encode, encode_rows, slots, take

DOMAIN, METHODS, TOP, ROUNDS = 1024, ["base", "norm-sub"], 100, 30


def main() -> None:
    """Prints the table."""
    labels = tuple(f"value {i:04}" for i in range(DOMAIN))
    stream = ldp.Stream("colours", ldp.OLH(epsilon="1", domain_size=DOMAIN), labels=labels)
    counts = np.random.default_rng(1).poisson(300_000, DOMAIN)
    taken = take(stream, stream.oracle.estimate(counts, n=1_000_000), Cut({0: 1_000_000}, {}), sequence=1000)
    places = slots(METHODS, TOP, (), DOMAIN)
    took = {"rows": 0.0, "messages": 0.0}
    for _ in range(ROUNDS):  # in turns, so that what else the machine does takes from both
        for what in took:
            began = time.process_time()
            _ = encode_rows(taken, places) if what == "rows" else encode(taken)
            took[what] += time.process_time() - began
    rows = encode_rows(taken, places)
    whole = b"".join(row.key + row.value for row in rows)
    print(
        "| rows of a window | bytes a row | with gzip | their encoding, by that of the snapshot's messages |"
    )
    print("| --- | --- | --- | --- |")
    compressed = len(gzip_encode(whole, 1)) / len(rows)
    print(
        f"| {len(rows)} | {len(whole) / len(rows):.0f} | {compressed:.0f} | {took['rows'] / took['messages']:.1f} |"
    )


if __name__ == "__main__":
    main()
