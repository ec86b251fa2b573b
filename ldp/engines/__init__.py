"""Counts an archive of records on Spark or Beam.

The modules `spark` and `beam` both use `tally`. Install the extra ``ldp-worker[spark]`` or ``ldp-worker[beam]`` on the
machine that starts the job and on all machines that count.
"""
