"""Score intervals, bounds from binomial tails, and confidence sequences."""
