"""Alarms against forged reports: what honest reports look like whatever their users' values are, watched as they come.

A client that makes reports up need not toss the coins (`ldp.poisoning`). Some facts of a report have a law that
depends on the coins alone: how many values a unary report supports, OLH's seed, that two reports are hardly ever the
same. A forged report that is the strongest there is breaks one of them; one that tosses all coins but that of its
target breaks none, and no alarm finds it: it is an honest report of somebody who has the value.
"""

from ldp.alarms.ones import Ones
from ldp.alarms.repeats import Repeats
from ldp.alarms.uniform import Uniform
from ldp.alarms.watch import Alarm, Watch

__all__ = ["Alarm", "Ones", "Repeats", "Uniform", "Watch"]
