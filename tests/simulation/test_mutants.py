"""The list of mutants: each still fits the code, and some are caught by the history that is noted with them."""

import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS, ROOT, Mutant, one_of_each_file


def _misfit(mutant: Mutant) -> str:
    try:
        mutant.changed()
    except ValueError as error:
        return str(error)
    return "" if mutant.seed is not None else f"{mutant}: no seed; `make mutants` finds one"


def test_each_mutant_fits_the_code_and_has_a_seed() -> None:
    assert [misfit for mutant in MUTANTS if (misfit := _misfit(mutant))] == []


@pytest.mark.long
def test_one_mutant_of_each_file_is_caught_by_its_recorded_history() -> None:
    """`make mutants N=0` tries all; each compiles the code again, which this process has loaded already."""
    program = "from tests.simulation.mutants import one_of_each_file, run; run(one_of_each_file(), 0)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1100)
    assert f"{len(one_of_each_file())} of {len(one_of_each_file())} are caught" in done.stdout, (
        f"{done.stdout}{done.stderr}\nWhere histories are others now, `make mutants` finds new ones, and notes them."
    )
