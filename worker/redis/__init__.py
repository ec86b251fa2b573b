"""The way to Redis: who listens there, a server, Sentinels or a cluster, and what to do where nobody lets us in.

`connecting` makes the client that a URL asks for, `script` runs what is written in Lua, `advice` has the
remedy for each error.
"""
