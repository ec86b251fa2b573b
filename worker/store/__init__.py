"""The store: Redis and its scripts, the only place where counts are written.

`claim.lua`, `promote.lua` and `compare.lua` are the steps of an owner, `cut.lua` reads a partition for the publisher,
`install.lua` is the step of an import.
"""
