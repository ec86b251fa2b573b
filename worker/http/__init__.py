"""HTTP: `server` serves probes, metrics and the page; `client` reads them from a process."""
