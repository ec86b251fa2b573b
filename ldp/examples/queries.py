# /// script
# requires-python = ">=3.11"
# dependencies = ["ldp-worker"]
# ///
"""Queries: sets by label, most frequent values, the best method for a set."""

import numpy as np

import ldp
from ldp import query
from ldp.analysis.method_selection import choose_all
from ldp.query import SetQuery

LABELS = ("espresso", "filter coffee", "iced coffee", "green tea", "black tea", "iced tea", "water", "milk")
stream = ldp.Stream("drinks", ldp.OUE("1", domain_size=8), labels=LABELS)
rng = np.random.default_rng(3)
users = rng.multinomial(20_000, [0.2, 0.15, 0.02, 0.1, 0.2, 0.03, 0.25, 0.05])  # number of users per value
counts = stream.oracle.simulate(users, rng)
estimate = stream.oracle.estimate(counts, n=20_000).labelled(LABELS)

for name, patterns in {"tea": ["*tea"], "cold": ["iced*", "water", "milk"]}.items():
    values = stream.where(*patterns)
    low, high = query.interval(estimate, values)
    answer = query.answer(estimate, values, "norm-sub")
    print(f"{name}: {answer:.3f} by Norm-Sub; Base's 95 % interval {low:.3f} to {high:.3f}")

least, most = query.top_interval(estimate, 3)  # all three intervals cover with probability 95 %
for place, value in enumerate(query.top(estimate, 3)):
    print(f"{LABELS[value]}: {least[place]:.3f} to {most[place]:.3f}")

(ranking,) = choose_all(estimate, [SetQuery("tea", stream.where("*tea"))], rng)
print("for tea:", ranking.best, "is best" if ranking.clear else "is best, but not clearly")
