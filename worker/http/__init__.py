"""HTTP: probes and metrics, which `server` says to whoever may reach the port, and `client` asks a process for."""
