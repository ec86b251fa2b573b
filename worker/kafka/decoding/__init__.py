"""Decodes record batches to columns: codecs, checksums and records, without the client library."""
