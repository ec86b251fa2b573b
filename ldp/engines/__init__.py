"""History on an existing engine: an archive of records counted by Spark or Beam is a state like any other.

A file an engine; `tally` is what they share. Each needs an extra, ``pip install 'ldp-worker[spark]'`` or ``[beam]``, on
the machines that count, too.
"""
