"""Judging a client as a black box: values in, frames out, and whether these are what the protocol's law says.

`running` has a command make reports, `channel` compares them with the law, `spending` bounds the ε that they spend from
below, `repeating` looks for coins that come again, `timing` for time that tells the value, and `verdict` puts it
together. `vectors` is for a client whose coins can be scripted.
"""
