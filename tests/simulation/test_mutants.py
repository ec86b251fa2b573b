"""The list of mutants: each still fits the code, and some are caught by the history that is noted with them."""

import ast
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS, ROOT, Mutant, one_of_each_file


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    for file, text in mutant.changed().items():
        if file.endswith(".py"):
            ast.parse(text)


def test_no_two_mutants_have_one_name() -> None:
    assert len({(mutant.file, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)


def test_each_of_them_is_noted_with_a_history() -> None:
    assert [str(mutant) for mutant in MUTANTS if mutant.seed is None] == [], "`make mutants` finds one"


@pytest.mark.long
def test_one_of_each_file_is_caught_by_the_history_that_is_noted() -> None:
    """`make mutants N=0` tries all; each reads the code anew, which this process has read already."""
    program = "from tests.simulation.mutants import one_of_each_file, run; run(one_of_each_file(), 0)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1100)
    assert f"{len(one_of_each_file())} of {len(one_of_each_file())} are caught" in done.stdout, (
        f"{done.stdout}{done.stderr}\nWhere histories are others now, `make mutants` finds new ones, and notes them."
    )
