"""Counting: claim, count, commit, written once against narrow ports; knows neither Kafka nor Redis nor a screen.

- `ports`: what it needs of the world, what passes through, and how that can fail.
- `columns`: records as they come; `partition_state`: what is kept of one, a pure function of its log and its `rules`.
- `layout` and `lineage`: how that is stored, of what it is, and which versions go on with it.
- `head`: what was published last.
- `claim` decides where a partition goes on; `ownership` claims, counts and commits, step by step.
- `rejections`: what clients send that does not count.
"""
