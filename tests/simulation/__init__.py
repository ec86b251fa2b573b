"""A whole worker in memory, under a seeded scheduler: log, ownership, commits, publisher, snapshot producer, loop.

The worker's own code runs down to the calls of its clients: a consumer, producers and an administrator of Kafka's, and
Redis' with its scripts. Between any two of these calls any other worker may run, a process may die or hang, a request
may be lost, come late or come twice, a reply may be lost, and brokers and store may do what is the worst for it. One
seed is one history; what is stored, held and published in it is compared with a recount at every step.
"""
