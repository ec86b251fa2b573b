"""Environments of their own for peers: built once from hash-pinned requirements, kept below the user's cache folder.

Requirements that name setuptools are built with that one, and not with any that the installer fetches by itself.
"""

import fcntl
import hashlib
import re
import subprocess
import sys
from pathlib import Path

from deploy.local.services import cache

BUILDS = re.compile(r"^setuptools==.*\n(?:    .*\n)*", re.MULTILINE)
"""Build tools of the other packages, in a lock."""


def environment(requirements: Path) -> str:
    """The Python of an environment with the packages; it is built where there is none for these requirements."""
    kind = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache() / f"bench-peers-{kind}"
    python, complete = str(folder / "bin" / "python"), folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            print(f"building {folder} from {requirements.name} ...", file=sys.stderr, flush=True)
            _run(sys.executable, "-m", "venv", "--clear", str(folder))
            if found := BUILDS.search(requirements.read_text(encoding="utf-8")):
                (folder / "builds.txt").write_text(found[0], encoding="utf-8")
                _install(python, folder / "builds.txt")
            _install(python, requirements, *(["--no-build-isolation"] if found else []))
            complete.touch()
    return python


def _install(python: str, requirements: Path, *options: str) -> None:
    """Installs packages and their dependencies."""
    uv = str(Path(sys.executable).with_name("uv"))
    _run(
        uv,
        "pip",
        "install",
        "--python",
        python,
        "--require-hashes",
        "--no-deps",
        *options,
        "-r",
        str(requirements),
    )


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
