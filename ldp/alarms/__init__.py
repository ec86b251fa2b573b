"""Alarms against poisoning reports: laws of honest reports that do not depend on the users' values.

Some facts of a report have a law that depends on the coins alone: the Hamming weight of a unary report, OLH's seed,
that two reports are hardly ever equal. The strongest poisoning report (`ldp.poisoning`) breaks one of them. One that
tosses all coins except that of its target is an honest report of another value, and no alarm detects it.
"""

from ldp.alarms.hamming_weight import HammingWeight
from ldp.alarms.repeats import Repeats
from ldp.alarms.uniform import Uniform
from ldp.alarms.watch import Alarm, Watch

__all__ = ["Alarm", "HammingWeight", "Repeats", "Uniform", "Watch"]
