"""The dead-letter topic: which records get a dead letter, the dead letters sent, and read."""
