"""What the opening of Section V and its set-up claim."""

from __future__ import annotations

import numpy as np

from ldp.consistency import METHODS
from ldp.experiments.claims.claim import (
    ERRORS,
    FULL,
    RANDOM,
    TOP,
    Claim,
    best,
)
from ldp.experiments.evidence import Evidence, Finding, judged

OPENING = "V"
SETUP = "V-A Experimental Setup"


def _small(rows: Evidence) -> Finding:
    deviations = np.array(
        [
            row.deviation / row.value
            for figure in ERRORS
            for dataset in rows.datasets(figure)
            for method in METHODS
            for row in rows.curve(figure, dataset, method)
        ]
    )
    top = np.median(
        [row.deviation / row.value for name in rows.datasets(TOP) for row in rows.curve(TOP, name, "base")]
    )
    return judged(
        deviations < 0.25, f"deviation / mean: median {np.median(deviations):.2f}, of Base's top k {top:.2f}"
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        OPENING,
        "for full-domain query, Base-Cut performs the best",
        (FULL,),
        "least MSE",
        best([FULL], "base-cut"),
    ),
    Claim(
        OPENING,
        "for set-value query, PowerNS performs the best",
        RANDOM,
        "least MSE",
        best(RANDOM, "power-ns"),
    ),
    Claim(
        OPENING,
        "for high-frequency-value query, Norm performs the best",
        (TOP,),
        "least MSE",
        best([TOP], "norm"),
    ),
    Claim(
        SETUP,
        "The standard deviation is typically very small",
        ERRORS,
        "below 25 % of the mean",
        _small,
        ("zipf", "emoji"),
    ),
)
