"""The evaluation of the paper (Section V): data, figures and claims.

- `datasets` has the data, `evaluation` the paper's experiments, `choice` and `eleventh` two more, `sums` Figure 2.
- `jobs` computes rows on many cores, `figures` describes each figure, and `plots` draws the figures of the paper.
- `evidence` and `claims` assess each claim. `report` and `reproduce` write the output folder.
"""
