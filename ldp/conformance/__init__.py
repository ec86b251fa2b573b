"""Black-box test that compares a client's frames with the protocol.

`running` runs the client. `channel` compares frequencies of reports with the protocol's probabilities, `spending`
computes a lower bound of the spent ε, `excess` computes the excess of ε that the test would have found, `repeating`
detects reused coins, and `timing` detects times that depend on the value. `verdict` combines the results. `vectors`
tests a client with scripted coins.
"""
