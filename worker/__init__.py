"""The service: reports in from Kafka, counts in Redis exactly once, snapshots out to Kafka.

`counting` and `publishing` are the core; `kafka`, `store`, `http` and `observe` are the world around it; `service`
wires them. `config` says what is wanted; `check`, `audit` and `simulation` are beside the service; `cli` has the
commands.
"""
