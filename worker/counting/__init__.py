"""Counting: the exactly-once core, independent of Kafka, Redis and HTTP.

- `ports`: the interfaces to Kafka and Redis, with their values and errors.
- `columns`: records. `partition_state`, `window_state`: the state of a partition. `rules`, `windows`, `lateness`:
  record limits, windows, and the pane of each record.
- `layout`, `lineage`, `invariants`: the stored form, its identity and its checks.
- `head`: the newest published snapshot.
- `claim`: the offset at which a partition continues. `ownership`: claims, counting and commits.
"""
