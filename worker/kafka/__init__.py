"""Kafka: all that speaks to brokers, and the only place that knows the client library.

What a worker needs, each the Kafka of a port or of a part of one:

- `log`: reports in, as a member of a consumer group, and the offsets that mirror what was counted.
- `seam`: a fetch's bytes as they came; `intake`: what waits of them, decoded ahead.
- `records`: record batches to columns, by `batches`, `crc32c`, `blocks`, `streams`, and `memory` below them.
- `reading`: our own topics (snapshots, rows, dead letters), past what cannot be read; every reader of them uses it.
- `dead_letters`: malformed records out; `sampling`: which of them, where they are many.
- `outbox`: snapshots out, a transaction each, and the head of the newest.
- `group`: what the group knows of partitions without counts.

What commands need, as anybody might:

- `standalone`: a topic and its group, asked by who is no member.
- `brokers`: the way to the brokers, with the reason and the advice where there is none.
- `topics`: what each must be like, what the cluster has, the making of those that are missing.
- `cluster`: what of all that `check` looks at.
- `undecided`: what open transactions hold back.
- `newest`: the newest records of any topic; `letters`: those of the dead-letter topic, read.
- `snapshots`: the snapshot topic, read.
- `sender`: records of reports, sent.

And of the library itself: `errors`, what it raises, by names that others may know; `quirks`, what it gets wrong.
"""

from kafka.net.sasl.oauth import AbstractTokenProvider

from worker.kafka import quirks
from worker.login import Tokens

quirks.mend_connections()  # before any client of this room connects
AbstractTokenProvider.register(Tokens)  # what the client demands of whoever gives it tokens
