"""Kept kernels: a clone of the same sources has the code of an earlier run, and a clone of others has none of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import compiled


@pytest.fixture
def clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str], Path]:
    """Makes a checkout with a kernel of this source, and goes there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(name: str, source: str) -> Path:
        root = tmp_path / name
        (root / "ldp" / "__pycache__").mkdir(parents=True)
        (root / "ldp" / "kernel.py").write_text(f"import numba\n{source}\n")
        monkeypatch.setattr(compiled, "ROOT", root)
        return root / "ldp" / "__pycache__" / "kernel.py311.nbi"

    return make


def test_a_clone_of_the_same_sources_shares_compiled_code(clone: Callable[[str, str], Path]) -> None:
    code = clone("first", "x = 1")
    assert not compiled.restore()
    code.write_bytes(b"compiled")
    compiled.keep()
    code = clone("same", "x = 1")
    assert compiled.restore()
    assert code.read_bytes() == b"compiled"
    code = clone("other", "x = 2")
    assert not compiled.restore()
    assert not code.exists()


def test_compiled_code_of_the_tree_and_few_others_are_kept(
    clone: Callable[[str, str], Path], tmp_path: Path
) -> None:
    for number in range(9):
        clone(str(number), f"x = {number}").write_bytes(b"compiled")
        compiled.keep()
    assert len(list((tmp_path / "cache").rglob("kernels-*"))) == 4
    code = clone("tree", "x = 8")
    code.write_bytes(b"of the tree")
    assert compiled.restore()
    assert code.read_bytes() == b"of the tree"
