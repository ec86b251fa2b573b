"""The frequency oracles, one protocol a file; `ORACLES` is the registry that everything else goes by."""

from ldp.oracles.grr import GRR
from ldp.oracles.hadamard import HadamardResponse
from ldp.oracles.olh import OLH
from ldp.oracles.oracle import Oracle
from ldp.oracles.projective import PGR
from ldp.oracles.subset import SubsetSelection
from ldp.oracles.unary import OUE, SUE

__all__ = ["GRR", "OLH", "ORACLES", "OUE", "PGR", "SUE", "HadamardResponse", "Oracle", "SubsetSelection"]

ORACLES: dict[str, type[Oracle]] = {
    protocol.name: protocol for protocol in (GRR, OLH, OUE, SUE, SubsetSelection, HadamardResponse, PGR)
}
