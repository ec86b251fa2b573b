"""Installed files, locks and package metadata, as far as visible without an installation."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

import ldp
import worker.cli
from worker.cli import command

ROOT = Path(ldp.__file__).parents[1]
TOML: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = TOML["project"]
LEFT_OUT = [ROOT / path for path in TOML["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CITATION: dict[str, Any] = YAML(typ="safe").load(ROOT / ".github/CITATION.cff")


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(requirement).name) for requirement in requirements}


# --- the version --------------------------------------------------------------------------------------------


def source(code: str) -> str:
    """Output of a Python that sees this tree and the standard library."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_version_equals_that_of_the_project() -> None:
    assert ldp.__version__ == PROJECT["version"]


def test_a_source_tree_without_installation_has_its_own_version() -> None:
    assert source("import ldp; print(ldp.__version__)") == "0+source"


# --- what needs what ----------------------------------------------------------------------------------------


HOMES_OF_ENGINES = {"apache_beam": ["apache-beam"], "pyarrow": ["pyarrow"], "pyspark": ["pyspark"]}
"""Content of a separate environment."""


def imported(package: str) -> Iterator[tuple[str, str]]:
    """Every third-party module that a package imports, except for its types: (file, distribution)."""
    homes = {**HOMES_OF_ENGINES, **importlib.metadata.packages_distributions()}
    for path in sorted((ROOT / package).rglob("*.py")):
        if any(path.is_relative_to(folder) for folder in LEFT_OUT):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for_types = [
            n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
        ]
        never = {id(inner) for node in for_types for part in node.body for inner in ast.walk(part)}
        for node in ast.walk(tree):
            if id(node) in never:
                continue
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            else:
                continue
            for module in {name.partition(".")[0] for name in modules} - sys.stdlib_module_names:
                if module not in ("ldp", "worker"):
                    (distribution,) = set(homes[module])
                    yield str(path.relative_to(ROOT)), canonicalize_name(distribution)


def test_ldp_imports_its_dependencies_and_only_engines_more() -> None:
    allowed = names(PROJECT["dependencies"])
    more: dict[str, set[str]] = {}
    for file, distribution in imported("ldp"):
        if distribution not in allowed:
            more.setdefault(file, set()).add(distribution)
    assert more == {
        "ldp/engines/spark.py": names(EXTRAS["spark"]),
        "ldp/engines/beam.py": names(EXTRAS["beam"]),
    }


def test_the_worker_imports_only_packages_of_its_extra_and_the_gateway_more() -> None:
    allowed = names(PROJECT["dependencies"]) | names(EXTRAS["worker"])
    more = {pair for pair in imported("worker") if pair[1] not in allowed}
    assert more == {
        ("worker/service/gateway.py", "granian"),
        ("worker/gateway/ohttp.py", "cryptography"),
        ("worker/gateway/ohttp.py", "pyhpke"),
    }
    assert names(EXTRAS["gateway"]) == {"ldp-worker", "cryptography", "granian", "pyhpke"}


# --- an extra that is missing -------------------------------------------------------------------------------


def test_a_configuration_is_written_without_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_version", lambda package: None)
    file = tmp_path / "worker.toml"
    assert CliRunner().invoke(worker.cli.cli, ["init", str(file)]).exit_code == 0
    assert "[[streams]]" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(worker.cli.cli.commands) - {"init"}))
def test_a_command_without_the_extra_prints_one_line_and_exits_2(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str | None:
        return None if package in ("redis", "python-snappy") else importlib.metadata.version(package)

    (tmp_path / "counts.csv").touch()
    needed = {
        "simulate": ["--counts", str(tmp_path / "counts.csv"), "--column", "c", "--users", "1"],
        "remove": ["colours"],
        "ohttp-key": ["list"],
        "import": ["colours", str(tmp_path / "counts.csv")],
    }
    monkeypatch.setattr(command, "_version", version)
    result = CliRunner().invoke(worker.cli.cli, [name, *needed.get(name, [])])
    assert (result.exit_code, result.stdout) == (2, "")
    said = "not installed: python-snappy, redis; install the extra: pip install 'ldp-worker[worker]'"
    assert result.stderr == f"ldp-worker: {said}\n"


def test_another_version_of_the_kafka_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "version", lambda _: "3.0.13")
    result = CliRunner().invoke(worker.cli.cli, ["check"])
    assert (result.exit_code, result.stdout) == (2, "")
    said = "kafka-python 3.0.13; this worker requires 3.0.12: pip install kafka-python==3.0.12"
    assert result.stderr == f"ldp-worker: {said}\n"


@pytest.mark.parametrize("options", [["--help"], ["--version"], ["run", "--help"]])
def test_help_and_version_need_no_extra(options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_version", lambda _: None)
    result = CliRunner().invoke(worker.cli.cli, options)
    assert (result.exit_code, result.stderr) == (0, "")


# --- the locks ----------------------------------------------------------------------------------------------


def locked(name: str) -> dict[str, str]:
    """The lock's packages: 'name ; marker' -> the whole entry. Any other line is a fault."""
    text = (ROOT / name).read_text(encoding="utf-8")
    head = r"([a-z0-9-]+)==([a-z0-9.]+)( ; [a-z0-9_.'<>=! ]+)? \\\n"
    hashes = r"(?:    --hash=sha256:[0-9a-f]{64} \\\n)*    --hash=sha256:[0-9a-f]{64}\n"
    entries = list(re.finditer(head + hashes, text, re.IGNORECASE))
    assert "".join(entry[0] for entry in entries) == text
    return {entry[1] + (entry[3] or ""): entry[0] for entry in entries}


def test_the_worker_lock_is_a_subset_of_the_developer_lock() -> None:
    assert locked("requirements.lock").items() < locked("requirements-dev.lock").items()


@pytest.mark.parametrize(
    ("lock", "wanted"),
    [
        ("requirements.lock", [*PROJECT["dependencies"], *EXTRAS["worker"]]),
        ("requirements-dev.lock", EXTRAS["dev"][1:]),
        (
            "tests/support/engines/requirements.lock",
            [*PROJECT["dependencies"], *EXTRAS["spark"], *EXTRAS["beam"]],
        ),
    ],
)
def test_a_lock_satisfies_every_requirement(lock: str, wanted: list[str]) -> None:
    versions: dict[str, list[str]] = {}
    for entry in locked(lock).values():
        name, version = entry.split(maxsplit=1)[0].split("==")
        versions.setdefault(name, []).append(version)
    for requirement in map(Requirement, wanted):
        have = versions[canonicalize_name(requirement.name)]
        assert all(requirement.specifier.contains(version) for version in have), (requirement, have)


# --- what GitHub reads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_commit_with_a_version_comment(path: Path) -> None:
    used = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
    assert used
    for action in used:
        assert re.fullmatch(r"(actions|github)/[a-z-]+(/[a-z]+)?@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_workflows_have_only_the_required_write_permissions() -> None:
    writing = {
        (path.stem, name): {key for key, said in job.get("permissions", {}).items() if said == "write"}
        for path in WORKFLOWS
        for name, job in YAML(typ="safe").load(path)["jobs"].items()
        if "permissions" in job
    }
    assert writing == {
        ("security", "codeql"): {"security-events"},
        ("release", "build"): {"attestations", "id-token"},
        ("release", "image"): {"packages", "attestations", "id-token"},
        ("release", "release"): {"contents"},
        ("release", "publish"): {"id-token"},
    }
    for path in WORKFLOWS:
        assert YAML(typ="safe").load(path)["permissions"] == {"contents": "read"}


def test_every_file_has_the_same_version() -> None:
    assert str(CITATION["version"]) == PROJECT["version"]
    assert CITATION["license"] == PROJECT["license"]
    assert CITATION["references"][0]["doi"] in PROJECT["urls"]["Paper"]
    newest = re.search(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["version"]


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("ldp", "ldp: not installed: click; pip install ldp-worker installs all packages of the commands\n"),
        ("worker", "ldp-worker: not installed: click; install the extra: pip install 'ldp-worker[worker]'\n"),
    ],
)
def test_a_command_without_its_packages_names_the_remedy(package, said):
    code = f"import sys; sys.modules['click'] = None; from {package}.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_release_attests_its_uploads_and_has_notes(tmp_path: Path) -> None:
    jobs = YAML(typ="safe").load(ROOT / ".github/workflows/release.yml")["jobs"]
    steps = {step.get("uses", "").partition("@")[0]: step for step in reversed(jobs["build"]["steps"])}
    assert steps["actions/attest-build-provenance"]["with"]["subject-path"] == "dist/*"
    assert steps["actions/upload-artifact"]["with"]["path"] == "dist/"
    (attest,) = (step for step in jobs["image"]["steps"] if "attest" in step.get("uses", ""))
    assert attest["with"]["subject-digest"] == "${{ steps.push.outputs.digest }}"
    assert "pypi-attestations" in jobs["publish"]["steps"][1]["run"]
    (notes,) = (step["run"] for step in jobs["build"]["steps"] if "CHANGELOG.md" in step.get("name", ""))
    (tmp_path / "CHANGELOG.md").write_bytes((ROOT / "CHANGELOG.md").read_bytes())
    tagged = os.environ | {"GITHUB_REF_NAME": f"v{PROJECT['version']}"}
    subprocess.run(["bash", "-eu", "-c", notes], cwd=tmp_path, env=tagged, check=True, timeout=60)
    assert (tmp_path / "notes.md").read_text(encoding="utf-8").startswith("\nThe first release contains:\n")
    assert jobs["publish"]["needs"] == jobs["release"]["needs"] == "build"
