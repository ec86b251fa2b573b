"""Counting an archive of records on Spark or Beam.

A file an engine; `tally` is what they share. Each needs an extra, ``pip install 'ldp-worker[spark]'`` or ``[beam]``, on
the machines that count, too.
"""
