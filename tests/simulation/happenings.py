"""Events that must occur in a run of histories."""

OFTEN = (
    "a head alone", "a process hangs", "a request arrived late", "a window is not complete", "admitted",
    "another stream's transaction is open", "commit", "crash after a step", "crash before a step", "expelled",
    "final", "late", "lost reply", "lost request", "lost without a word", "named", "panes evicted", "provisional",
    "rebalance", "retention", "snapshot", "tombstone", "undated",
)  # fmt: skip
"""In every thousand of them, many times."""

RARE = (
    "a batch expired", "a clock jumps", "a heartbeat says that it is no member", "a partition has no leader",
    "a partition is refused", "a partition more", "a transaction is aborted by the next producer",
    "a transaction times out", "a window less", "a window more", "another deployment is refused", "bounded",
    "claimed, gap", "claimed, resume without a head", "compacted", "conflict", "damaged on the way",
    "admitted_from", "dead letter refused", "fenced", "given up", "head deleted", "loss noticed",
    "a document is edited in place", "a part", "a part of a window", "a population", "hidden reports",
    "a window is withheld", "a window of released reports", "an open window is withdrawn", "increments begin",
    "published reports were lost", "another limit", "a document more under a limit", "released counts are aborted",
    "lost and regained without a word", "named, with a floor", "no room", "offsets expired", "publisher fenced",
    "rule added", "sent twice", "staging_expired", "state lost", "store went back",
    "the topic's id is not known", "topic created again", "truncated",
)  # fmt: skip
"""In twenty thousand of them, three times at least."""
