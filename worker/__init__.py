"""The service: reports in from Kafka, counts in Redis exactly once, snapshots out to Kafka."""
