"""This machine: its memory, and the folder in which compiled kernels are kept."""

import os
from pathlib import Path

from worker.check.finding import Finding, Level

_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where a container's memory is said."""


def memory_bytes() -> int:
    """Returns the memory of this machine, or of the container that it is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _LIMIT.read_text(encoding="ascii").strip()
    except OSError:  # no container, or an older kernel's
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory


def cache_folder() -> str | None:
    """Returns the folder that compiled kernels are kept in, or None if there is none."""
    try:
        from ldp import kernels
    except RuntimeError:  # numba's, of the first kernel, where it can write nowhere
        return None
    return str(kernels.count_bits.stats.cache_path)


def judge_cache(asked: str | None, used: str | None) -> Finding:
    """Judges where compiled kernels are kept: without a place for them, no worker starts.

    Args:
        asked: NUMBA_CACHE_DIR, if it is set.
        used: the folder that they are kept in, or None if there is none that can be written to.
    """
    subject, todo = "compiled kernels", "set NUMBA_CACHE_DIR to a folder that can be written to"
    if used is None:
        return Finding(Level.ERROR, subject, "there is no folder to keep them in: workers do not start", todo)
    if asked and not Path(used).is_relative_to(Path(asked).absolute()):
        return Finding(Level.WARNING, subject, f"kept in {used}: {asked} cannot be written to", todo)
    return Finding(Level.OK, subject, f"kept in {used}")
