"""Threads and processes of a worker.

`stream` has the two threads of a stream, `run` the worker process, and `processes` the parent of several of them.
"""
