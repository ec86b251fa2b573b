"""Checks of the machine: memory, and the folder of compiled kernels."""

import os
from pathlib import Path

from worker.check.finding import Finding, Level

_LIMIT = Path("/sys/fs/cgroup/memory.max")


def memory_bytes() -> int:
    """Returns the memory of this machine or of its container, in bytes."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _LIMIT.read_text(encoding="ascii").strip()
    except OSError:  # not a container, or cgroup v1
        return memory
    return min(memory, int(limit)) if limit.isdigit() else memory


def cache_folder() -> str | None:
    """Returns the folder of compiled kernels, or None if none is writable."""
    try:
        from ldp import kernels
    except RuntimeError:  # numba raises it for the first kernel
        return None
    return str(kernels.count_ones.stats.cache_path)


def assess_cache(asked: str | None, used: str | None) -> Finding:
    """Compares the requested kernel cache folder with the one in use."""
    subject, hint = "compiled kernels", "set NUMBA_CACHE_DIR to a writable folder"
    if used is None:
        return Finding(Level.ERROR, subject, "no writable folder for them: workers do not start", hint)
    if asked and not Path(used).is_relative_to(Path(asked).absolute()):
        return Finding(Level.WARNING, subject, f"stored in {used}: {asked} is not writable", hint)
    return Finding(Level.OK, subject, f"stored in {used}")
