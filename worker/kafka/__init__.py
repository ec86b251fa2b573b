"""Kafka: the only package that uses the client library for the worker.

- `decoding`: record batches to columns.
- `client`: the library's defects, the raw fetch hook, connections, topics, errors, and a reader of the worker's topics.
- `reports`: the topic of reports, as a member of the consumer group and without joining it.
- `snapshots`: the snapshot topic and the topic of rows.
- `dead_letters`: sampling, writer and reader.
- `admin`: the cluster's state for `check`.
"""
