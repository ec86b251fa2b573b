"""When the statistical tests of `ldp` may be left out: only if git proves that nothing they depend on changed."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.changed import unchanged


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    def run(*words: str) -> str:
        named = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *named, *words], cwd=tmp_path, capture_output=True, check=True, text=True
        )
        return done.stdout.strip()

    for name in (
        "ldp/a.py",
        "worker/a.py",
        "tests/unit/ldp/a.py",
        "tests/integration/a.py",
        "tests/support/a.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    run("init", "--quiet")
    run("add", ".")
    run("commit", "--quiet", "--message", "base")
    return run


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("ldp/a.py", False),
        ("ldp/new.py", False),
        ("tests/unit/ldp/a.py", False),
        ("tests/support/a.py", False),
        ("pyproject.toml", False),
        ("worker/a.py", True),
        ("tests/integration/a.py", True),
        ("README.md", True),
    ],
)
@pytest.mark.parametrize("committed", [False, True])
def test_tests_depend_on_the_changed_file(
    git: Callable[..., str], tmp_path: Path, name: str, same: bool, committed: bool
) -> None:
    base = git("rev-parse", "HEAD")
    assert unchanged(base, tmp_path)
    (tmp_path / name).write_text("changed")
    if committed:
        git("add", ".")
        git("commit", "--quiet", "--message", "change")
    assert unchanged(base, tmp_path) == same


@pytest.mark.parametrize("base", ["", "0" * 40, "no-such-branch", "--quiet"])
def test_tests_run_if_the_changes_are_unknown(git: Callable[..., str], tmp_path: Path, base: str) -> None:
    assert not unchanged(base, tmp_path)


def test_tests_run_outside_of_git(tmp_path: Path) -> None:
    assert not unchanged("HEAD", tmp_path)
