"""The shuffler's core: deduplicates and permutes uploads.

An upload is one frame that a client sent to the gateway. A batch has B uploads: one transaction moves
them from an intake partition to the topic of reports. The package imports neither Kafka nor the configuration.
"""
