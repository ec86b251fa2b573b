"""The channel of each protocol, enumerated from its definition."""

import itertools

import numpy as np


def product(*ranges):
    """All tuples of some ranges, one a row."""
    return np.array(list(itertools.product(*map(range, ranges))), np.int64).reshape(-1, len(ranges))


def projective_points(prime, dimension):
    """The vectors whose first non-zero coordinate is 1, as numbers in ascending order: (K, t)."""
    vectors = product(*[prime] * dimension)[1:]
    first = (vectors != 0).argmax(axis=1)
    return vectors[vectors[np.arange(len(vectors)), first] == 1]


def signs(K):
    """The Hadamard matrix, built by doubling."""
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < K:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def reports(oracle):
    """Which values each report supports, (R, d), and its probability for each value, (d, R); OLH's hash is ideal."""
    d, E = oracle.domain_size, float(oracle.E)
    match oracle.name:
        case "grr":
            supports = np.eye(d, dtype=bool)
        case "olh":
            buckets = product(oracle.g, *[oracle.g] * d)
            supports = buckets[:, 1:] == buckets[:, :1]
        case "oue" | "sue":
            supports = product(*[2] * d) == 1
            p, q = (0.5, 1 / (E + 1)) if oracle.name == "oue" else (E**0.5 / (E**0.5 + 1), 1 / (E**0.5 + 1))
            ones = np.where(
                np.eye(d, dtype=bool)[:, None], p, q
            )  # each bit's probability of a 1, for each value
            return supports, np.where(supports, ones, 1 - ones).prod(axis=2)
        case "subset":
            supports = np.array([row for row in product(*[2] * d) if row.sum() == oracle.k]) == 1
        case "hadamard":
            supports = signs(oracle.state_size)[:, 1 : d + 1] == 1
        case "pgr":
            points = projective_points(oracle.prime, oracle.dimension)
            supports = points @ points[:d].T % oracle.prime == 0
    weights = np.where(supports.T, E, 1.0)  # E times as likely with support
    return supports, weights / weights.sum(axis=1, keepdims=True)
