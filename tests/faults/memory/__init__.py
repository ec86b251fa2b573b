"""A log, a store, a dead-letter topic and a snapshot topic in memory, under a seeded scheduler.

The worker's own code runs on threads that hand one baton around: each call of an interface is a step, and between any
two steps any other worker may run, a rebalance may come, a process may die, or a reply may be lost. One seed is one
history.
"""

from tests.faults.memory.log import MemoryLog
from tests.faults.memory.older import OlderStore
from tests.faults.memory.process import Process
from tests.faults.memory.scheduler import Crash
from tests.faults.memory.store import MemoryStore
from tests.faults.memory.world import Faults, World, rules_of

__all__ = ["Crash", "Faults", "MemoryLog", "MemoryStore", "OlderStore", "Process", "World", "rules_of"]
