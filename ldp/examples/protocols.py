# /// script
# requires-python = ">=3.11"
# dependencies = ["ldp-worker"]
# ///
"""Compares protocols, and the effect of one poisoning report under each."""

from ldp.analysis.protocol_selection import plan
from ldp.oracles import ORACLES
from ldp.poisoning import effect

made = plan("1", domain_size=300, reports=500_000)
for row in made.rows[:3]:
    own = {
        key: value for key, value in row.document.items() if key not in ("protocol", "epsilon", "domain_size")
    }
    one = effect(ORACLES[row.protocol]("1", 300, **own), 500_000)
    print(
        f"{row.protocol:6} standard error {100 * row.standard_error:.3f} %, {row.frame_bytes} bytes per report;"
        f" one poisoning report raises a value by {one.up:.1f} users"
    )
