"""The licences of what an environment carries, from each distribution's own metadata.

    python deploy/image/licences.py          a table in Markdown: package, version, licence, where its texts lie

Exits with 1 where a package names no licence that is known here, or one of `COPYLEFT` by a package that is not named
with it. What the base image carries is its own business: Debian says it in /usr/share/doc/*/copyright. Only the
standard library is used here, for the image's own environment is asked.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

FREE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
    *("CC0-1.0", "LLVM-exception", "MIT", "PSF-2.0", "Zlib"),
}
"""SPDX identifiers that ask for no more than that their text goes along."""
COPYLEFT = {
    "crc32c": {"LGPL-2.1-or-later"},
    "numpy": {"GPL-3.0-or-later", "GCC-exception-3.1", "LGPL-2.1-or-later"},
    "orjson": {"MPL-2.0"},
    "scipy": {"GPL-3.0-or-later", "GCC-exception-3.1", "LGPL-2.1-or-later"},
}
"""Who may have a licence that asks for more, and why that is met.

LGPL: crc32c, and libquadmath of the wheels of numpy and scipy, are files of their own that are loaded unchanged, and
anyone can put another version in their place. GPL: their libgfortran, whose exception lets it go along with anything.
MPL: the source of changed files is to be had, and none is changed.
"""
DECLARED = {
    "lz4": "BSD-3-Clause",
    "markdown-it-py": "MIT",
    "mdurl": "MIT",
    "numba": "BSD-2-Clause",
    "python-snappy": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
}
"""Packages whose metadata has no SPDX expression; as their licence's text says."""


def expression(of: metadata.Distribution) -> str:
    """The licence as an SPDX expression, or empty; with those of bundled libraries, as numpy and scipy write them."""
    short = header(of, "License-Expression") or DECLARED.get(name(of)) or header(of, "License")
    if "\n" in short:  # the whole text
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
    """A header of the metadata, empty where there is none."""
    return of.metadata[key] if key in of.metadata else ""  # noqa: SIM401 - the types have no get


def name(of: metadata.Distribution) -> str:
    """The name as an index has it: in small letters, with hyphens."""
    return re.sub(r"[-_.]+", "-", of.metadata["Name"]).lower()


def texts(of: metadata.Distribution) -> list[str]:
    """The licences' texts, as paths below the environment's packages."""
    meta = re.compile(r"\.dist-info/(?:.*/)?(?:LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)
    return sorted(str(path) for path in of.files or [] if meta.search(str(path)))


def unknown(of: metadata.Distribution) -> set[str]:
    """What of the expression nobody has looked at; of no licence at all, just that."""
    parts = set(re.split(r"[\s()]+", expression(of))) - {"AND", "OR", "WITH", ""}
    return (parts or {"no licence"}) - FREE - COPYLEFT.get(name(of), set())


def distributions() -> list[metadata.Distribution]:
    """What the running environment carries, by name; what installs packages goes with the base."""
    found = {name(one): one for one in metadata.distributions()}
    return [found[each] for each in sorted(found) if each not in {"pip", "setuptools"}]


def table(of: list[metadata.Distribution]) -> str:
    """The table, in Markdown."""
    rows = [f"| {name(one)} | {one.version} | {expression(one)} | {'<br>'.join(texts(one))} |" for one in of]
    return "\n".join(["| Package | Version | Licence | Texts |", "|---|---|---|---|", *rows])


def main() -> int:
    """Prints the table; returns the exit code."""
    carried = distributions()
    print(table(carried))
    strange = {name(one): unknown(one) for one in carried if unknown(one)}
    for package, what in strange.items():
        print(f"{package}: {', '.join(sorted(what))} is not known here", file=sys.stderr)
    return 1 if strange else 0


if __name__ == "__main__":
    sys.exit(main())
