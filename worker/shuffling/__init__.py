"""The shuffler's core: deduplicates, permutes and releases uploads.

An upload is one frame that a client sent to the gateway. A release moves B uploads from an intake partition to the
topic of reports in one transaction. The package imports neither Kafka nor the configuration.
"""
