"""Kafka: all that speaks to brokers, and the only place that knows the client library.

- `decoding`: record batches to columns, by code of our own.
- `client`: the library: what it gets wrong, the raw fetch, connecting, topics, errors, and one reader of our topics.
- `reports`: the topic of reports, read as a member of the group; and asked, read or written as anybody might.
- `snapshots`: the snapshot topic and the topic of rows, written and read.
- `dead_letters`: which records get a dead letter, the letters sent, and read.
- `admin`: what `check` asks of a cluster.
"""

from kafka.net.sasl.oauth import AbstractTokenProvider

from worker.kafka.client import quirks
from worker.login import Tokens

quirks.mend_connections()  # before any client of this room connects
AbstractTokenProvider.register(Tokens)  # what the client demands of whoever gives it tokens
