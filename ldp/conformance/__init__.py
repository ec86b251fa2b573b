"""Black-box test that compares a client's frames with the protocol's law.

`running` runs the command, `channel` compares reports with the law, `spending` bounds the ε spent from below, `excess`
computes the excess that would have been found, `repeating` detects reused coins, `timing` detects value-dependent time,
`verdict` combines the results. `vectors` tests a client with scripted coins.
"""
