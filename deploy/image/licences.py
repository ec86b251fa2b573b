"""Lists the licences of the installed packages, from their metadata.

    python deploy/image/licences.py          a Markdown table: package, version, licence, paths of the licence texts

Exits with 1 if a package has no licence, or one that neither `FREE` nor the package's entry in `COPYLEFT` accepts.
The base image's packages are not listed: Debian has their licences in /usr/share/doc/*/copyright. The script uses only
the standard library, because it runs in the image's own environment.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

FREE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
    *("CC0-1.0", "LLVM-exception", "MIT", "PSF-2.0", "Zlib"),
}
"""SPDX identifiers that require only that the licence text is included."""
COPYLEFT = {
    "crc32c": {"LGPL-2.1-or-later"},
    "numpy": {"GPL-3.0-or-later", "GCC-exception-3.1", "LGPL-2.1-or-later"},
    "orjson": {"MPL-2.0"},
    "scipy": {"GPL-3.0-or-later", "GCC-exception-3.1", "LGPL-2.1-or-later"},
}
"""Accepted licences with further requirements, by package.

LGPL: crc32c, and libquadmath in the wheels of numpy and scipy, are separate, unchanged files that a user can replace.
GPL: libgfortran in these wheels, whose exception permits linking with any program. MPL: the licence requires the
source of changed files, and no file is changed.
"""
DECLARED = {
    "lz4": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "numba": "BSD-2-Clause",
    "python-snappy": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
}
"""Licences of packages without an SPDX expression in their metadata, determined from the licence texts."""


def expression(of: metadata.Distribution) -> str:
    """Returns the SPDX expression with bundled libraries, or an empty string."""
    short = header(of, "License-Expression") or DECLARED.get(name(of)) or header(of, "License")
    if "\n" in short:  # the metadata contain the whole licence text
        short = ""
    along = [
        line.removeprefix("License: ").strip()
        for path in texts(of)
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


def texts(of: metadata.Distribution) -> list[str]:
    """Returns the paths of the licence texts, relative to site-packages."""
    meta = re.compile(r"\.dist-info/(?:.*/)?(?:LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)
    return sorted(str(path) for path in of.files or [] if meta.search(str(path)))


def unknown(of: metadata.Distribution) -> set[str]:
    """Returns unaccepted licences; {"no licence"} if unlicensed."""
    parts = set(re.split(r"[\s()]+", expression(of))) - {"AND", "OR", "WITH", ""}
    return (parts or {"no licence"}) - FREE - COPYLEFT.get(name(of), set())


def distributions() -> list[metadata.Distribution]:
    """Returns the installed distributions except pip and setuptools."""
    found = {name(one): one for one in metadata.distributions()}
    return [found[each] for each in sorted(found) if each not in {"pip", "setuptools"}]


def table(of: list[metadata.Distribution]) -> str:
    """Returns a Markdown table with one row per package."""
    rows = [f"| {name(one)} | {one.version} | {expression(one)} | {'<br>'.join(texts(one))} |" for one in of]
    return "\n".join(["| Package | Version | Licence | Texts |", "|---|---|---|---|", *rows])


def main() -> int:
    """Prints the table; returns the exit code."""
    installed = distributions()
    print(table(installed))
    refused = {name(one): unknown(one) for one in installed if unknown(one)}
    for package, found in refused.items():
        print(f"{package}: {', '.join(sorted(found))}; add only a reviewed licence", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
