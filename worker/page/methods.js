/** What each method does, in a line: the table of docs/guides/choose-a-method.md. f̃ is Base. */

export const MEANS = {
  __proto__: null,
  base: "unbiased, so that some values are below 0. The one whose interval is drawn, and the one for your own statistics.",
  "base-pos": "negative estimates become 0. For single values, where a positive bias does not matter.",
  "post-pos": "each answer below 0 becomes 0, not the values that it is added up from. For few fixed queries.",
  "base-cut": "what noise alone could make becomes 0. For which values are there at all.",
  norm: "the same number is added to all, so that they sum to 1: unbiased. For the most frequent values.",
  "norm-mul": "negative estimates become 0, the others are scaled to sum to 1. For smooth distributions only.",
  "norm-cut": "the smallest become 0 until the sum is at most 1. For fixed sets of rare values.",
  "norm-sub": "the nearest distribution: one number is taken from all that stay positive. A sound default for everything.",
  "mle-apx": "the most likely distribution, approximately. As norm-sub, slightly better at large ε.",
  power: "the posterior mean under a fitted power law. For single values, if the data follow one.",
  "power-ns": "norm-sub of power. For sets of values, if the data follow a power law.",
};
