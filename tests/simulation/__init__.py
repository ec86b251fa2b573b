"""Runs a whole worker in memory, under a seeded scheduler.

The worker's own code runs down to the calls of its clients of Kafka and Redis. Between two of these calls
any other worker may run, a process may die or hang, and a request or reply may be lost, delayed or repeated.
One seed is one history. At every step, a recount checks the stored, held and published state.
"""
