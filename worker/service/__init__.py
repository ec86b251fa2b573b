"""Threads and processes of a worker.

`stream` has the two threads of a stream, `run` has the worker process, and `processes` has the parent of several worker
processes.
"""
