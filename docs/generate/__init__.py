"""Generators of the reference pages. `make reference` writes the pages."""
