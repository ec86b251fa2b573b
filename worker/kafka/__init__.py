"""Kafka: the only package that uses the client library for the worker.

- `decoding`: record batches to columns.
- `client`: workarounds for the library, the raw fetch hook, connections, topics, errors, a reader of output topics.
- `reports`: the topic of reports, as a member of the consumer group and without joining it.
- `snapshots`: the snapshot topic and the topic of rows.
- `dead_letters`: sampling, writer and reader.
- `admin`: the cluster's state for `check`.
"""
