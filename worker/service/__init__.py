"""The service: the loops that wire the rooms together."""
