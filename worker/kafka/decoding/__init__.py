"""Record batches to columns: codecs, checksums and records, by nothing of the client library."""
