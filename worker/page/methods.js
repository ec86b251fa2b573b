/** Purposes of the methods, from the table in docs/guides/choose-a-method.md. */

export const MEANS = {
  __proto__: null,
  base: "for your own statistics: unbiased, can be negative. The only method with intervals.",
  "base-pos": "for single values, if a positive bias does not matter: negative estimates become 0.",
  "post-pos": "for few fixed queries: negative answers of queries become 0, but not their values.",
  "base-cut": "to find which values exist at all: estimates below a noise threshold become 0.",
  norm: "for the most frequent values: adds one number to all values, so that they sum to 1. Unbiased.",
  "norm-mul": "for smooth distributions only: sets negative estimates to 0 and scales the others to sum to 1.",
  "norm-cut": "for fixed sets of rare values: sets the smallest estimates to 0 until the sum is at most 1.",
  "norm-sub": "for reading, the default: the nearest distribution without negative values.",
  "mle-apx": "for reading at large ε: approximates the most likely distribution, like norm-sub.",
  power: "for single values, if the data follow a power law: the posterior mean under a fitted power law.",
  "power-ns": "for sets of values, if the data follow a power law: norm-sub of power.",
};
