"""Writes an environment's bill of materials in CycloneDX 1.6.

    python deploy/image/sbom.py requirements.lock > sbom.json

The document lists the installed packages of the lock, with version, licence and dependencies, and the hashes of the
files that pip may have installed. Other installed packages, such as development tools, are left out. The script uses
only the standard library, because it runs in the image's own environment. The base image's packages are not listed:
Debian has their licences in /usr/share/doc/*/copyright.
"""

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

EXTRAS = {"gateway", "worker", "hiredis"}
"""Extras that the lock installs."""

DECLARED = {
    "lz4": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "numba": "BSD-2-Clause",
    "python-snappy": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
}
"""Licences of packages without an SPDX expression in their metadata, determined from the licence texts."""
_TEXT = re.compile(r"\.dist-info/(?:.*/)?(?:LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)
"""Path of a licence text, relative to site-packages."""


def expression(of: metadata.Distribution) -> str:
    """Returns the SPDX expression with bundled libraries, or an empty string."""
    short = header(of, "License-Expression") or DECLARED.get(name(of)) or header(of, "License")
    if "\n" in short:  # the metadata contain the whole licence text
        short = ""
    texts = [path for path in of.files or [] if _TEXT.search(str(path))]
    along = [
        line.removeprefix("License: ").strip()
        for path in texts
        for line in Path(str(of.locate_file(path))).read_text(encoding="utf-8").splitlines()
        if line.startswith("License: ")
    ]
    parts = dict.fromkeys([*short.split(" AND "), *along])
    return " AND ".join(parts)


def header(of: metadata.Distribution, key: str) -> str:
    """Returns a header of the metadata, or an empty string."""
    return of.metadata[key] if key in of.metadata else ""  # noqa: SIM401 - the types have no get


def name(of: metadata.Distribution) -> str:
    """Returns the package's normalized name."""
    return normalized(of.metadata["Name"])


def normalized(name: str) -> str:
    """Returns a package's name in lower case, with hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(text: str) -> dict[str, set[str]]:
    """Returns the SHA-256 hashes in a lock file by `name==version`."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", text)
    return {
        entry.split()[0]: set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        for entry in entries
        if "==" in entry
    }


def needed(of: metadata.Distribution) -> set[str]:
    """Returns the names of a package's direct dependencies."""
    found = set()
    for line in of.requires or []:
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", line)
        if extra is None or extra[1] in EXTRAS:
            found.add(normalized(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]))
    return found


def purl(of: metadata.Distribution) -> str:
    """Returns the package URL, which vulnerability databases use as a key."""
    return f"pkg:pypi/{name(of)}@{of.version}"


def component(of: metadata.Distribution, hashes: set[str], kind: str = "library") -> dict[str, Any]:
    """Returns one package as a CycloneDX component."""
    entry: dict[str, Any] = {
        "type": kind,
        "bom-ref": purl(of),
        "name": name(of),
        "version": of.version,
        "purl": purl(of),
        "licenses": [{"expression": expression(of)}],
    }
    if hashes:
        # The metadata does not record which of a version's files was installed, so all hashes are listed.
        entry["externalReferences"] = [
            {
                "type": "distribution",
                "url": purl(of),
                "hashes": [{"alg": "SHA-256", "content": each} for each in sorted(hashes)],
            }
        ]
    return entry


def bill(root: metadata.Distribution, lock: str) -> dict[str, Any]:
    """Returns the CycloneDX document of a root package."""
    hashes = locked(lock)
    parts = {name(one): one for one in metadata.distributions() if f"{name(one)}=={one.version}" in hashes}
    known = {name(root): root} | parts
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(root, set(), "application")},
        "components": [
            component(one, hashes[f"{part}=={one.version}"]) for part, one in sorted(parts.items())
        ],
        "dependencies": [
            {"ref": purl(one), "dependsOn": sorted(purl(known[each]) for each in needed(one) & known.keys())}
            for _, one in sorted(known.items())
        ],
    }


def main() -> int:
    """Runs the command line; returns the exit code."""
    lock = Path(sys.argv[1]).read_text(encoding="utf-8")
    json.dump(bill(metadata.distribution("ldp-worker"), lock), sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
