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
    with tempfile.TemporaryDirectory() as folder:
        library = built(Path(folder))
        if isinstance(library, str):
            yield {"bench": "count OLH reports as C does", "skipped": library}
            return
        setup = f"C with {library.instructions().decode()}, {Path(compiler() or '').name} {' '.join(FLAGS)}; "
        for name in ("mul32", "xxh32"):
            for epsilon in ("1", "0.5"):
                yield line(
                    ldp.OLH(epsilon, domain_size=D, hash=name), getattr(library, f"count_{name}"), setup
                )


def compiler() -> str | None:
    """The C compiler, if there is one."""
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def built(folder: Path) -> ctypes.CDLL | str:
    """The loops in C; or why they cannot be built."""
    used = compiler()
    if used is None:
        return "there is no C compiler"
    path = folder / "olh.so"
    command = [used, *FLAGS, "-shared", "-fPIC", "-o", str(path), str(Path(__file__).with_name("olh.c"))]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        return f"{Path(used).name}: {reason}"
    library = ctypes.CDLL(str(path))
    library.instructions.restype = ctypes.c_char_p
    return library


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
