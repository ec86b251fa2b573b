"""Changes between estimates, and the choice of a method or a protocol."""
