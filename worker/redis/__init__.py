"""Connections to a Redis server, Sentinels or a cluster.

`connecting` makes the client that a URL asks for, `script` runs what is written in Lua, `advice` has the
remedy for each error.
"""
