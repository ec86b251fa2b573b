"""The frequency oracles, one protocol a file; `ORACLES` is the registry that everything else goes by."""

from ldp.oracles.grr import GRR
from ldp.oracles.olh import OLH
from ldp.oracles.oracle import Oracle

__all__ = ["GRR", "OLH", "ORACLES", "Oracle"]

ORACLES: dict[str, type[Oracle]] = {protocol.name: protocol for protocol in (GRR, OLH)}
