"""The paper's evaluation (Section V), run again: its data, its figures, its claims."""
