"""Detects poisoning reports by statistics that do not depend on values.

Some statistics of honest reports have the same distribution for all values. Examples are the Hamming weight of a unary
report, OLH's seed, and the number of equal reports. The strongest poisoning reports (`ldp.poisoning`) deviate from one
of these distributions. An honest report of a false value does not, so no alarm detects it.
"""

from ldp.alarms.hamming_weight import HammingWeight
from ldp.alarms.repeats import Repeats
from ldp.alarms.uniform import Uniform
from ldp.alarms.watch import Alarm, Watch

__all__ = ["Alarm", "HammingWeight", "Repeats", "Uniform", "Watch"]
