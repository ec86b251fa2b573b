"""Conformance test of a client as a black box: values in, frames out, compared with the protocol's law.

`running` runs the command, `channel` compares reports with the law, `spending` bounds the ε spent from below,
`repeating` detects reused coins, `timing` detects value-dependent time, `verdict` combines them. `vectors` tests a
client with scripted coins.
"""
