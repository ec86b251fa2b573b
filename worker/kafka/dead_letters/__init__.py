"""The dead-letter topic: which records get a dead letter, the letters sent, and read."""
