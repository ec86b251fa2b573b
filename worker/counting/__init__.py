"""Counting: the exactly-once core, independent of Kafka, Redis and HTTP.

- `ports`: the interfaces to Kafka and Redis, with their data types and errors.
- `columns`: batches of records. `partition_state`, `window_state`: the counts and windows of a partition.
- `rules`, `windows`, `lateness`: record limits, windows, and the pane of each record.
- `layout`, `lineage`, `invariants`: the stored format, the identity of counts, and the checks of stored counts.
- `head`: the newest published snapshot.
- `claim`: the offset at which counting continues. `ownership`: claims, counting and commits.
"""
