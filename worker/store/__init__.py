"""The store: Redis and its scripts; the only place where counts are written.

`redis` is the store of `worker.counting.ports`; `claim.lua`, `promote.lua` and `compare.lua` are its steps, `cut.lua`
reads a partition for who publishes, `install.lua` is the step of an import. `errors` names what the client library
raises.
"""
