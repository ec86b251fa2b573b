"""What Section V of the paper says, sentence by sentence, and how the rows judge it."""

from __future__ import annotations

from ldp.experiments.claims import bias, discussion, frequent, full_domain, opening, sets
from ldp.experiments.claims.claim import Claim
from ldp.experiments.evidence import Evidence, Finding

CLAIMS: tuple[Claim, ...] = (
    *opening.CLAIMS,
    *bias.CLAIMS,
    *full_domain.CLAIMS,
    *sets.CLAIMS,
    *frequent.CLAIMS,
    *discussion.CLAIMS,
)
"""The claims, in the paper's order."""


def judge(rows: Evidence) -> list[tuple[Claim, Finding]]:
    """Every claim that the rows can judge, with what they say, in the paper's order."""
    return [(claim, claim.found(rows)) for claim in CLAIMS if rows.figures.issuperset(claim.needs)]


__all__ = ["CLAIMS", "Claim", "judge"]
