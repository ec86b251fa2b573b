"""Threads and processes of a worker.

`stream` has a stream's two threads, `run` has the worker process, and `processes` has the parent of several workers.
"""
