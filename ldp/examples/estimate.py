"""Counting and estimating: reports of two servers add up, and methods are columns of a data frame."""

import numpy as np

import ldp
from ldp.consistency.together import by_method

stream = ldp.Stream("drinks", ldp.OLH("1", domain_size=4), labels=("water", "tea", "coffee", "milk"))
oracle = stream.oracle

rng = np.random.default_rng(1)  # made-up users and their coins: only for simulation
users = rng.choice(4, 20_000, p=[0.5, 0.3, 0.2, 0.0])
states = []
for half in np.array_split(users, 2):  # a server each
    state = oracle.zeros()
    oracle.accumulate(state, oracle.perturb(half, rng=rng))
    states.append(state)

counts = oracle.support(states[0] + states[1])
estimate = oracle.estimate(counts, n=users.size).labelled(stream.labels)
frame = estimate.to_frame(by_method(estimate, ["norm-sub", "power-ns"]))
print(estimate)
print(frame.drop(columns=["value", "std_error"]).round(3).to_string(index=False))
