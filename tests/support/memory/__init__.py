"""A report topic, a store, a dead-letter topic and a snapshot topic in memory.

The worker's own code runs on them in one thread: a test calls each step of a worker, and places each fault.
"""

from tests.support.memory.log import MemoryLog
from tests.support.memory.process import Process
from tests.support.memory.store import MemoryStore
from tests.support.memory.world import Crash, World, rules_of

__all__ = ["Crash", "MemoryLog", "MemoryStore", "Process", "World", "rules_of"]
