"""The evaluation of the paper (Section V): data, figures and claims.

- `datasets`: the data. `evaluation`: the paper's experiments; `choice` and `eleventh`: two more; `sums`: Figure 2.
- `jobs` computes rows on many cores; `figures` describes each figure; `plots` draws the paper's.
- `evidence` and `claims`: the verdict on each statement; `report` and `reproduce` write a folder.
"""
