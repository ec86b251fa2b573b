"""Counting into states with the kernels."""

import numpy as np

from ldp import kernels


def addresses_of(*states):
    """The states' addresses, as the kernels take them; the caller keeps the states."""
    return np.array([kernels.address_of(state) for state in states])


def count_hashes(name, state, seeds, buckets, g):
    """Counts reports of OLH into one state."""
    kernels.COUNT[name](addresses_of(state), np.array([seeds.size]), seeds, buckets, (state.size, g))
