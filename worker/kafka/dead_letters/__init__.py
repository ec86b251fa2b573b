"""The dead-letter topic: which records get a letter, the letters sent, and read."""
