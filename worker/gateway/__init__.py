"""The gateway: accepts uploads over HTTP, without metadata. Needs the extra ``gateway``."""
