"""Counting: the exactly-once core, independent of Kafka, Redis and any screen.

- `ports`: the interfaces to the outside, their values and errors.
- `columns`: records; `partition_state` and `window_state`: the state of a partition; `rules`, `windows`, `lateness`.
- `layout`, `lineage`, `invariants`: the stored form, its identity and its checks.
- `head`: the newest published snapshot.
- `claim` decides where a partition goes on; `ownership` claims, counts and commits; `importing` imports histories.
"""
