"""Counting OLH reports: the compiled kernels against loops written by hand in C, with the processor's intrinsics."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import ldp
from ldp import kernels
from tests.bench.measure import Line, compare, instruction_set

D = 1024
REPORTS = 16_384
FLAGS = ("-O3", "-march=native")


def lines() -> Iterator[Line]:
    """Hashes a second, for both hashes and for a number of buckets that is a power of two and one that is not."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        yield {"bench": "count OLH reports as C does", "skipped": "there is no C compiler"}
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "olh.so"
        command = [
            compiler,
            *FLAGS,
            "-shared",
            "-fPIC",
            "-o",
            str(path),
            str(Path(__file__).with_name("olh.c")),
        ]
        built = subprocess.run(command, check=False, capture_output=True, text=True)
        if built.returncode:
            reason = next((line for line in built.stderr.splitlines() if "error" in line), "no reason given")
            yield {"bench": "count OLH reports as C does", "skipped": f"{Path(compiler).name}: {reason}"}
            return
        library = ctypes.CDLL(str(path))
        library.instructions.restype = ctypes.c_char_p
        setup = f"C with {library.instructions().decode()}, {Path(compiler).name} {' '.join(FLAGS)}; "
        for name in ("mix32", "xxh32"):
            for epsilon in ("1", "0.5"):
                yield line(
                    ldp.OLH(epsilon, domain_size=D, hash=name), getattr(library, f"count_{name}"), setup
                )


def line(oracle: ldp.OLH, function: Callable[..., None], setup: str) -> Line:
    """One comparison, after a check that both count the same."""
    rng = np.random.default_rng(7)
    reports = oracle.perturb(rng.integers(D, size=REPORTS), rng=rng)
    seeds, buckets = reports["seed"].astype(np.uint32), reports["bucket"].astype(np.uint32)
    ours, theirs = oracle.zeros(), oracle.zeros()

    def peer() -> None:
        function(
            pointer(theirs),
            ctypes.c_size_t(D),
            pointer(seeds),
            pointer(buckets),
            ctypes.c_size_t(REPORTS),
            oracle.g,
        )

    def count() -> None:
        kernels.COUNT[oracle.hash](ours, seeds, buckets, oracle.g)

    count()
    peer()
    assert np.array_equal(ours, theirs), f"C counts {oracle.hash} otherwise"
    return compare(
        f"count OLH reports as C does, {oracle.hash}, g={oracle.g}",
        count,
        peer,
        peer_name="C loops with intrinsics",
        setup=f"d={D}, ε={oracle.epsilon}, {REPORTS} reports a call; {setup}ours with {instruction_set()}",
        rate=(REPORTS * D, "hashes"),
    )


def pointer(array: npt.NDArray[np.generic]) -> ctypes.c_void_p:
    """Where an array begins."""
    return ctypes.c_void_p(array.ctypes.data)
