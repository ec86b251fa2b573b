"""Score intervals, bounds by binomial tails, and confidence sequences."""
