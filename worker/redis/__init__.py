"""Connections to a Redis server, Sentinels or a cluster.

`connecting` creates the client for a URL, and `reaching` also tests the connection. `pipelining` runs many commands in
one round trip, and `script` runs Lua scripts. `advice` contains remedies for errors.
"""
