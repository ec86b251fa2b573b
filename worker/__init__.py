"""Service that counts reports exactly once and publishes snapshots.

Reports arrive through Kafka, counts are in Redis, and snapshots go to a Kafka topic. `counting` and `publishing` are
the core. `kafka`, `store`, `http` and `observe` connect the core to other systems, and `service` wires all parts.
`config` has the settings. `check`, `audit` and `simulation` are separate tools. `cli` has the commands.
"""
