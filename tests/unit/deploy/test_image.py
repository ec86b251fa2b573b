"""Contents of the image: reviewed licences, and a valid bill of materials."""

import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from cyclonedx.schema.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from license_expression import get_spdx_licensing
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from deploy.image import sbom

ROOT = Path(sbom.__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SERVICES = YAML(typ="safe").load(ROOT / "deploy/compose/compose.yaml")["services"]


def locked() -> Iterator[metadata.Distribution]:
    """Packages that the lock installs on this Python."""
    for line in re.findall(r"(?m)^([a-z0-9].*?) \\$", LOCK):
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate():
            found = metadata.distribution(wanted.name)
            assert wanted.specifier.contains(found.version), line
            yield found


CARRIED = {sbom.name(one): one for one in locked()}
BILL = sbom.bill(metadata.distribution("ldp-worker"), LOCK)


FREE = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI"),
    *("CC0-1.0", "LLVM-exception", "MIT", "MIT-0", "PSF-2.0", "Zlib"),
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


def unaccepted(of: metadata.Distribution) -> set[str]:
    """Unaccepted licences; {"no licence"} if unlicensed."""
    parts = set(re.split(r"[\s()]+", sbom.expression(of))) - {"AND", "OR", "WITH", ""}
    return (parts or {"no licence"}) - FREE - COPYLEFT.get(sbom.name(of), set())


# --- licences -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", CARRIED)
def test_every_licence_is_known_and_valid(package: str) -> None:
    said = sbom.expression(CARRIED[package])
    assert get_spdx_licensing().validate(said).errors == []
    assert unaccepted(CARRIED[package]) == set()


def test_every_copyleft_exception_is_needed() -> None:
    for package, what in COPYLEFT.items():
        expression = sbom.expression(CARRIED[package])
        # if each Python has its own version, one of them may have lost a library
        demanded = any if len(re.findall(rf"(?m)^{package}==", LOCK)) > 1 else all
        assert demanded(
            re.search(rf"(?<![\w.-]){re.escape(licence)}(?![\w.-])", expression) for licence in what
        )
        assert not what & FREE
    for package in sbom.DECLARED:
        assert not sbom.header(CARRIED[package], "License-Expression"), package


class Package(metadata.Distribution):
    """A distribution with these headers and files."""

    def __init__(self, headers: str, files: dict[str, str], folder: Path) -> None:
        self._headers, self._files, self._folder = headers, files, folder
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")

    def read_text(self, filename: str) -> str | None:
        record = "".join(f"{name},,\n" for name in self._files)
        return {"METADATA": self._headers, "RECORD": record}.get(filename)

    def locate_file(self, path: object) -> Path:
        return self._folder / str(path)


@pytest.mark.parametrize(
    ("headers", "expression", "unknown"),
    [
        ("License-Expression: MIT", "MIT", set()),
        ("License: AGPL-3.0-only", "AGPL-3.0-only", {"AGPL-3.0-only"}),
        ("License-Expression: MIT AND (Apache-2.0 OR GPL-2.0-only)", None, {"GPL-2.0-only"}),
        ("License-Expression: LGPL-2.1-or-later", "LGPL-2.1-or-later", {"LGPL-2.1-or-later"}),
        ("License: all\n of its\n text", "", {"no licence"}),
        ("Summary: none", "", {"no licence"}),
    ],
)
def test_an_unknown_licence_is_reported(
    headers: str, expression: str | None, unknown: set[str], tmp_path: Path
) -> None:
    package = Package(f"Name: Some.Thing\nVersion: 1\n{headers}\n", {}, tmp_path)
    assert sbom.expression(package) == (expression if expression is not None else headers.split(": ")[1])
    assert unaccepted(package) == unknown


def test_bundled_libraries_of_a_wheel_count(tmp_path: Path) -> None:
    file = "some_thing-1.dist-info/licenses/LICENSE.txt"
    text = "Its own.\n----\nName: other\nLicense: GPL-3.0-or-later\n  For details see below\n"
    package = Package("Name: some-thing\nVersion: 1\nLicense-Expression: MIT\n", {file: text}, tmp_path)
    assert sbom.expression(package) == "MIT AND GPL-3.0-or-later"
    assert unaccepted(package) == {"GPL-3.0-or-later"}


# --- the bill of materials ----------------------------------------------------------------------------------


def test_the_bill_is_valid_cyclonedx() -> None:
    text = json.dumps(BILL)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    damaged = text.replace('"library"', '"book"', 1)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(damaged) is not None


def test_the_bill_lists_exactly_the_locked_packages() -> None:
    assert {part["name"]: part["version"] for part in BILL["components"]} == {
        name: one.version for name, one in CARRIED.items()
    }
    assert BILL["metadata"]["component"]["name"] == "ldp-worker"


# --- the base, and what a container may do ------------------------------------------------------------------


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_root_capabilities(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", [name for name, service in SERVICES.items() if "build" in service])
def test_workers_have_a_read_only_root_and_a_memory_limit(name: str) -> None:
    assert SERVICES[name]["read_only"] is True
    assert SERVICES[name]["mem_limit"]
    ends = SERVICES[name]["restart"] == "no"
    assert (SERVICES[name].get("healthcheck") == {"disable": True}) == ends


def test_only_the_kernel_cache_is_writable() -> None:
    (cache,) = set(re.findall(r"NUMBA_CACHE_DIR=(\S+)", DOCKERFILE))
    assert f"\nVOLUME {cache}\n" in DOCKERFILE
    assert f"--chown=10001:10001 {cache} {cache}\n" in DOCKERFILE
    assert DOCKERFILE.index("\nVOLUME ") > DOCKERFILE.index(f"{cache} {cache}\n")
