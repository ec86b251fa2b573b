"""The dead-letter topic: sampling, sending and reading dead letters."""
