"""Analyses of estimates: changes between two of them, the choice of a method, the choice of a protocol."""
