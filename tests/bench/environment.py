"""Environments of their own for peers: built once from hash-pinned requirements, kept below the user's cache folder."""

import hashlib
import subprocess
import sys
from pathlib import Path

from deploy.local.services import cache


def environment(requirements: Path) -> str:
    """The Python of an environment with the packages; it is built where there is none for these requirements.

    Raises:
        subprocess.CalledProcessError: it cannot be built.
    """
    kind = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = cache() / f"bench-peers-{kind}"
    python, complete = str(folder / "bin" / "python"), folder / "complete"
    if not complete.exists():
        print(f"building {folder} from {requirements.name} ...", file=sys.stderr, flush=True)
        install = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
        ]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [*install, "-r", str(requirements)],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True)
        complete.touch()
    return python
