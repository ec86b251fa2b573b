"""Decodes record batches to columns, without the client library."""
