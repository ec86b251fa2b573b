"""HTTP server for metrics, probes and the web page."""
