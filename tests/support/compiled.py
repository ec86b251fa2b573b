"""Compiled kernels, kept between checkouts of the same sources.

numba stores compiled code next to the sources, and a fresh clone has none. Compiling takes half a minute of a core.
`restore` copies the code that an earlier run compiled into the tree, and `keep` stores the code that this run
compiled. numba compares the contents of the sources before it uses a file, so restored code is never older than its
source.
"""

import hashlib
import platform
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding
import numba

from deploy.local.services import cache

ROOT = Path(__file__).parents[2]
_KEPT = 4
"""Folders that stay: one for each recent state of the sources."""


def _sources() -> list[Path]:
    packages = (path for name in ("ldp", "worker") for path in sorted((ROOT / name).rglob("*.py")))
    return [path for path in packages if "numba" in path.read_text(encoding="utf-8")]


def _folder() -> Path:
    """Returns where code of these sources for this Python, numba and CPU is kept."""
    digest = hashlib.sha256()
    machine = llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten()
    digest.update(repr((platform.python_version(), numba.__version__, machine)).encode())
    for path in _sources():
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return cache() / f"kernels-{digest.hexdigest()[:16]}"


def _compiled(root: Path) -> Iterator[Path]:
    """Yields numba's files below a folder: indices, and the code that they name."""
    for name in ("ldp", "worker"):
        yield from (root / name).rglob("*.nb[ic]")


def restore() -> bool:
    """Copies kept code into the tree, unless there is code; returns whether the tree has code now."""
    if any(_compiled(ROOT)):
        return True
    kept = _folder()
    for path in _compiled(kept):
        target = ROOT / path.relative_to(kept)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, target)
    return kept.is_dir()


def keep() -> None:
    """Stores the code of the tree, unless code of these sources is stored; removes the oldest code."""
    kept = _folder()
    if kept.is_dir():
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix="partial-kernels-", dir=kept.parent))
    for path in _compiled(ROOT):
        target = partial / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    try:
        partial.rename(kept)
    except OSError:  # another run was faster
        shutil.rmtree(partial)
    old = sorted(kept.parent.glob("kernels-*"), key=lambda folder: folder.stat().st_mtime)
    for folder in old[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
