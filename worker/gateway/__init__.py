"""The gateway: accepts uploads over HTTP; needs the extra ``gateway``."""
