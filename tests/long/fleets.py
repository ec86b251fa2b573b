"""Coverage of 95 % intervals for fleets of several documents: ``python -m tests.long.fleets [FLEETS]``.

In the random fleets, by default 2,000, the share of each value depends on the document. The first lines compare
`FleetEstimate.interval`, the interval with the largest slope B of all documents, and the normal interval of the mean by
inverse variance. They count the 10 most frequent values. Each further line has a difficult fleet, drawn 400 times: the
mean coverage of its 10 most frequent values, and the least coverage of a value.
"""

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

import ldp
from ldp.fleet import FleetEstimate

Vector = npt.NDArray[np.float64]
Users = npt.NDArray[np.int64]

PROTOCOLS = ["oue", "olh", "sue", "grr", "pgr"]
DRAWS, FREQUENT, Z = 400, 10, 1.959963984540054


def random_fleet(rng: np.random.Generator) -> tuple[ldp.Fleet, list[Users]]:
    """Returns five documents, and the number of users with each value: shares rise or fall by document."""
    d = int(rng.integers(12, 40))
    oracles = [ldp.oracle(name, rng.choice(["1/2", "1", "2", "3"]), d) for name in rng.permutation(PROTOCOLS)]
    sizes = (rng.dirichlet(np.full(5, 2.0)) * 10 ** rng.uniform(4, 5)).astype(int) + 500
    shares, tilt = rng.permutation(1 / np.arange(1.0, d + 1)), rng.normal(0, 0.8, d)
    weights = [shares * np.exp(tilt * age) for age in range(-2, 3)]
    users = [rng.multinomial(n, each / each.sum()) for n, each in zip(sizes, weights, strict=True)]
    return ldp.Fleet(tuple(ldp.Stream("s", each) for each in oracles)), users


def simulated(
    fleet: ldp.Fleet, users: Sequence[Users], rng: np.random.Generator
) -> tuple[FleetEstimate, Vector]:
    """Returns an estimate from honest reports, and the true shares among the reports of each value's documents."""
    counted = [
        each.oracle.estimate(each.oracle.simulate(own, rng), int(own.sum()))
        for each, own in zip(fleet.documents, users, strict=True)
    ]
    found, totals = fleet.estimate(counted), np.zeros(fleet.size)
    for places, own in zip(fleet.places, users, strict=True):
        totals[places] += own
    return found, totals / found.known


def covered(found: FleetEstimate, truth: Vector) -> npt.NDArray[np.bool_]:
    """Returns whether the interval of each value contains its share."""
    low, high = found.interval()
    return np.asarray((low <= truth) & (truth <= high))


def largest_slope(found: FleetEstimate, truth: Vector) -> npt.NDArray[np.bool_]:
    """Returns `covered` for the interval with the variance (A + B·f)/n of the largest slope B."""
    pairs = [(each.oracle.p, each.oracle.q) for each in found.fleet.documents]
    absent = found.mixture(np.full(found.fleet.size, float(q * (1 - q) / (p - q) ** 2)) for p, q in pairs)
    slope = max(float((1 - p - q) / (p - q)) for p, q in pairs)
    return np.abs(found.frequencies - truth) <= Z * np.sqrt((absent + slope * truth) / found.n)


def by_inverse_variance(found: FleetEstimate, truth: Vector) -> npt.NDArray[np.bool_]:
    """Returns `covered` for weights by inverse variance."""
    precise = np.array([1 / one.std_error() ** 2 for one in found.counted])
    mean = (precise * [one.frequencies for one in found.counted]).sum(axis=0) / precise.sum(axis=0)
    return np.abs(mean - truth) * np.sqrt(precise.sum(axis=0)) <= Z


def difficult() -> dict[str, list[tuple[ldp.Oracle, int, Vector]]]:
    """Returns fleets by name: the oracle, the number of reports and the shares of each document."""
    falling, few = 1 / np.arange(1.0, 1001), np.array([0.7, 0.3])
    tiny = ldp.GRR("1/2", 1000)
    return {
        "1 % grr ε 8 d 2, 99 % grr ε 1/2 d 1000": [(ldp.GRR("8", 2), 1000, few), (tiny, 99_000, falling)],
        "99 % oue ε 1, 1 % grr ε 1/2, d 1000": [
            (ldp.OUE("1", 1000), 99_000, falling),
            (tiny, 1000, falling[::-1]),
        ],
        "10⁶ oue ε 4, 30 grr ε 1/2, d 1000": [
            (ldp.OUE("4", 1000), 10**6, falling),
            (tiny, 30, falling[::-1]),
        ],
        "hadamard ε 1, subset ε 1": [
            (ldp.HadamardResponse("1", 50), 20_000, falling[:50]),
            (ldp.SubsetSelection("1", 50), 20_000, falling[49::-1]),
        ],
        "hadamard ε 4 with one value, grr ε 1/10": [
            (ldp.HadamardResponse("4", 50), 5000, np.eye(50)[0]),
            (ldp.GRR("1/10", 50), 500, np.eye(50)[1]),
        ],
        "a label only in 1 % of the reports": [
            (ldp.OUE("1", 20), 50_000, falling[:20]),
            (ldp.OUE("1", 21), 500, np.append(np.full(20, 0.02), 0.6)),
        ],
    }


def main(fleets: int) -> None:
    """Prints the coverage of random and of difficult fleets."""
    rng, ways = np.random.default_rng(34), (covered, largest_slope, by_inverse_variance)
    hits = np.zeros(len(ways))
    for _ in range(fleets):
        found, truth = simulated(*random_fleet(rng), rng)
        frequent = np.argsort(-truth)[:FREQUENT]
        hits += [way(found, truth)[frequent].mean() for way in ways]
    for way, hit in zip(ways, hits, strict=True):
        print(f"{way.__name__:42} {100 * hit / fleets:.1f} %")
    for name, parts in difficult().items():
        fleet = ldp.Fleet(tuple(ldp.Stream("s", oracle) for oracle, _, _ in parts))
        users = [rng.multinomial(n, shares / shares.sum()) for _, n, shares in parts]
        each = np.zeros(fleet.size)
        for _ in range(DRAWS):
            found, truth = simulated(fleet, users, rng)
            each += covered(found, truth)
        frequent = np.argsort(-truth)[:FREQUENT]
        print(
            f"{name:42} {100 * each[frequent].mean() / DRAWS:.1f} %, least {100 * each.min() / DRAWS:.1f} %"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
