"""HTTP server of probes, metrics and the page, and its client."""
