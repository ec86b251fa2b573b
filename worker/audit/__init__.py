"""Audit: is what Redis holds exactly what the log says?

An independent verifier: it reads the topic again up to the stored offsets, record batch by record batch, unpacks and
counts with its own parsers, its own hashes and numpy, and compares with the stored state bit for bit. What is stored
is what was counted before any decoding: of Hadamard Response and PGR the reports by their index.

It shares no code with what it audits. Of this project it imports `worker.config`, which says where Kafka and Redis are
and gives the stream's public document, and two packages that connect and log in; no frames, kernels, oracles, counting,
store, or the worker's ways to Kafka. So a fault in one of them cannot hide itself. Each format is therefore
stated twice in this project, here the second time.

Each partition is read from Redis in one script, so its counts and its offset belong together, and is recounted
to exactly that offset: the audit is right also while workers count on. A script that only reads is let in also
where Redis is full, a transaction is not.

Of a stream with windows it says by itself, of each record, which pane it counts in, or why in none; and it recounts
what is published, all time and windows, up to the offsets that its own messages name. A partition's floor and what was
dropped came from a head, which may be gone: they are taken as stored, and held against the other lines and the newest
head.

Records that were counted and then deleted by the topic's retention cannot be counted again. Of such a partition
the audit counts what remains, and asks whether the rest can be counts of the deleted records: a loss may show in
that, but that there was none is not proved.

`batches` and `codecs` make records of what was fetched; `parsing`, `protocols` and `hashes` say what a record's reports
support, `windows` where they count, `recount` adds them up, `history` follows the rules; `stored` decodes what Redis
holds, `differences` and `remains` say what is between the two. `snapshots` and `heads` say what is published and
whether it goes together, `methods` and `power` whether each method's numbers are what it makes of the plain estimate;
`published`, `latest` and `decoding` what is between that and a recount. `comparison` judges a partition, `verification`
a stream, `verdict` is what comes of it; only `reading` knows Kafka and Redis.
"""

from worker.audit.errors import AuditError
from worker.audit.verdict import VERDICTS, PartitionVerdict, StreamVerdict
from worker.audit.verification import verify

__all__ = ["VERDICTS", "AuditError", "PartitionVerdict", "StreamVerdict", "verify"]
