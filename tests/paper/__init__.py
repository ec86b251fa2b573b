"""The evaluation of the paper (Section V): data, figures and claims.

- `datasets` contains the data. `evaluation` has the paper's experiments. `choice` and `eleventh` add two experiments.
- `jobs` computes rows on many cores, `figures` describes each figure, and `plots` draws the figures of the paper.
- `evidence`, `claims` and `sums` compare results with the paper. `report` and `reproduce` write the output folder.

Run ``python -m tests.paper`` in the source tree. The installed package does not contain the evaluation.
"""
