"""HTTP: probes and metrics, for whoever may reach the port; all in `server`."""
