"""Writes an environment's bill of materials in CycloneDX 1.6.

    python deploy/image/sbom.py requirements.lock > sbom.json

The document lists the installed direct and transitive dependencies of ldp-worker, with version, licence and dependency
graph. The lock adds the hashes of the files that pip may have installed. Other installed packages, such as development
tools, are left out. The script uses only the standard library, because it runs in the image's own environment. The base
image's packages are not listed: Debian has their licences in /usr/share/doc/*/copyright.
"""

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

EXTRA = "worker"

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
    """Returns the package's normalized name: lower case, with hyphens."""
    return re.sub(r"[-_.]+", "-", of.metadata["Name"]).lower()


def locked(text: str) -> dict[str, set[str]]:
    """Returns the SHA-256 hashes in a lock file by `name==version`."""
    entries = re.split(r"(?m)^(?=[a-z0-9])", text)
    return {
        entry.split()[0]: set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry))
        for entry in entries
        if "==" in entry
    }


def needed(of: metadata.Distribution, extras: set[str]) -> list[metadata.Distribution]:
    """Returns the installed direct dependencies, including those of extras."""
    found = {}
    for line in of.requires or []:
        requirement, _, marker = line.partition(";")
        of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
        if of_extra is not None and of_extra[1] not in extras:
            continue
        wanted = re.match(r"[A-Za-z0-9._-]+", requirement)
        if wanted is not None:
            try:
                one = metadata.distribution(wanted[0])
            except metadata.PackageNotFoundError:
                continue
            found[name(one)] = one
    return list(found.values())


def extras(line: str) -> set[str]:
    """Returns a requirement's extras, such as hiredis in ``redis[hiredis]``."""
    found = re.match(r"[A-Za-z0-9._-]+\s*\[([^\]]*)\]", line)
    return set() if found is None else {extra.strip() for extra in found[1].split(",")}


def graph(root: metadata.Distribution) -> dict[str, tuple[metadata.Distribution, set[str]]]:
    """Returns all dependencies by name, with their direct dependencies."""
    asked: dict[str, set[str]] = {name(root): {EXTRA}}
    for line in root.requires or []:
        found = re.match(r"[A-Za-z0-9._-]+", line)
        if found is not None:
            asked.setdefault(re.sub(r"[-_.]+", "-", found[0]).lower(), set()).update(extras(line))
    known: dict[str, tuple[metadata.Distribution, set[str]]] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if name(one) not in known:
            needs = needed(one, asked.get(name(one), set()))
            known[name(one)] = one, {name(each) for each in needs}
            waiting += needs
    return known


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
    hashes, known = locked(lock), graph(root)
    parts = sorted(set(known) - {name(root)})
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(root, set(), "application")},
        "components": [
            component(known[part][0], hashes.get(f"{part}=={known[part][0].version}", set()))
            for part in parts
        ],
        "dependencies": [
            {"ref": purl(one), "dependsOn": sorted(purl(known[each][0]) for each in needs)}
            for one, needs in (known[each] for each in sorted(known))
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
