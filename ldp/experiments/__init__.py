"""The paper's evaluation (Section V), run again: its data, its figures, its claims.

- `datasets`: the data. `evaluation`: the paper's experiments; `choice` and `eleventh`: two more; `sums`: Figure 2's.
- `jobs` computes an experiment's rows on many cores; `figures` says what each figure shows.
- `evidence` and `claims`: the rows by curve, and what the paper says of them, sentence by sentence.
- `plots`, with `styles`, draws them; `report` writes; `reproduce` does all that, from names to a folder.
"""
