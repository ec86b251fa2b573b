# /// script
# requires-python = ">=3.11"
# dependencies = ["ldp-worker", "pandas"]
# ///
"""Estimates from the counts of two servers, as a data frame."""

import numpy as np

import ldp
from ldp.consistency.together import by_method

stream = ldp.Stream("drinks", ldp.OLH("1", domain_size=4), labels=("water", "tea", "coffee", "milk"))
oracle = stream.oracle

rng = np.random.default_rng(1)  # fixed seed: only for simulated users
users = rng.choice(4, 20_000, p=[0.5, 0.3, 0.2, 0.0])
states = []
for half in np.array_split(users, 2):  # one half per server
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(half, rng=rng))
    states.append(state)

counts = oracle.support(states[0] + states[1])
estimate = oracle.estimate(counts, n=users.size).labelled(stream.labels)
frame = estimate.to_frame(by_method(estimate, ["norm-sub", "power-ns"]))
print(estimate)
print(frame.drop(columns=["value", "std_error"]).round(3).to_string(index=False))
