"""The store of counts in Redis: the only code that writes counts.

Owners run `claim.lua`, `promote.lua` and `compare.lua`. The publisher runs `cut.lua`. An import runs `install.lua`.
"""
