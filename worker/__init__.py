"""Service that counts reports exactly once and publishes snapshots.

Reports arrive through Kafka, counts are in Redis, and snapshots go to a Kafka topic. `counting` and `publishing` are
the core. `kafka`, `store`, `http` and `observe` connect the core to other systems. `service` combines all parts into a
process. `config` defines the settings, and `cli` the commands. `check`, `audit` and `simulation` are separate tools.
"""
