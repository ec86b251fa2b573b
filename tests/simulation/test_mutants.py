"""The list of mutants: each still fits the code, and a few are caught by a history; `make mutants` tries all."""

import ast
import subprocess
import sys

import pytest

from tests.simulation.mutants import MUTANTS, ROOT, Mutant

SAMPLE = [
    "what is held is not claimed",
    "step 3: the letters are safe",
    "step 6: Kafka confirms",
    "a cut that is behind",
    "the sequence",
    "committed records",
    "what is written is taken up",
]
"""Each is caught by one of the first histories."""
HISTORIES = 200


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.file}: {mutant.name}")
def test_a_mutant_fits_the_code(mutant: Mutant) -> None:
    for file, text in mutant.changed().items():
        if file.endswith(".py"):
            ast.parse(text)


def test_no_two_mutants_have_one_name() -> None:
    assert len({(mutant.file, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
def test_a_sample_of_them_is_caught() -> None:
    command = [sys.executable, "-m", "tests.simulation.mutants", str(HISTORIES), *SAMPLE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SAMPLE)} of {len(SAMPLE)} are caught" in done.stdout
