"""The only package of the worker that uses the Kafka client library.

- `decoding`: decodes record batches to columns.
- `client`: works around the library's defects, connects clients, manages topics and reads output topics.
- `reports`: reads the topic of reports, with or without joining the consumer group, and sends reports.
- `snapshots`: publishes and reads the snapshot topic and the topic of rows.
- `dead_letters`: samples, sends and reads dead letters.
- `admin`: describes a cluster for ``ldp-worker check``.
"""
