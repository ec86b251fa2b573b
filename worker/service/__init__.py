"""Service: threads and processes of a worker, and the wiring of the packages.

`stream` is one stream's two loops, `run` the process around them, `processes` several of those with their parent.
"""
