"""Connections to a Redis server, Sentinels or a cluster.

`connecting` creates the client for a URL, `pipelining` and `script` run commands and Lua scripts, and `advice` has the
remedies for errors.
"""
