"""Wires the packages together.

`stream` is one stream's two loops, `run` the process around them, `processes` several of those with their parent.
"""
