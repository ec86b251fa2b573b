/** Descriptions of the methods, from the table in docs/guides/choose-a-method.md. */

export const MEANS = {
  __proto__: null,
  base: "unbiased, can be negative. For your own statistics; the only method with an interval.",
  "base-pos": "sets negative estimates to 0. For single values, if a positive bias does not matter.",
  "post-pos": "sets negative answers of queries to 0, but not their values. For few fixed queries.",
  "base-cut": "sets estimates below a noise threshold to 0. To find which values exist at all.",
  norm: "adds one number to all values, so that they sum to 1; unbiased. For the most frequent values.",
  "norm-mul": "sets negative estimates to 0 and scales the others to sum to 1. For smooth distributions only.",
  "norm-cut": "sets the smallest estimates to 0 until the sum is at most 1. For fixed sets of rare values.",
  "norm-sub": "the nearest distribution: adds one number to all values that stay positive. A sound default.",
  "mle-apx": "approximates the most likely distribution. Like norm-sub, slightly better at large ε.",
  power: "the posterior mean under a fitted power law. For single values, if the data follow a power law.",
  "power-ns": "norm-sub of power. For sets of values, if the data follow a power law.",
};
