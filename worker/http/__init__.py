"""HTTP server of probes, metrics and the page, and a client that reads them from a process."""
