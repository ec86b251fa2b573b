"""Intervals of estimates: score intervals, tails of binomial sums and confidence sequences."""
