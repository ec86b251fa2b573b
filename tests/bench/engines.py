"""Counting an archive: `ldp aggregate` compared with Spark and Beam, on the same file and one core.

Measures the overhead of an engine: rows sent to Python and back, tasks, added states. The engines start earlier, in
the environment that tests/integration/engines/test_engines.py uses.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import ldp
from ldp.files import Aggregator, perturbed
from ldp.state import State
from tests.bench.environment import environment
from tests.bench.measure import Line, compare

ROOT = Path(__file__).parents[2]
ENGINES = {"spark": "PySpark, local[1]", "beam": "Apache Beam, DirectRunner"}
RECORDS = 100_000
D = 1024


def lines() -> Iterator[Line]:
    """Records a second, for each engine."""
    benches = {
        engine: f"count an archive as {name.partition(',')[0]} does" for engine, name in ENGINES.items()
    }
    try:
        python = environment(ROOT / "tests" / "support" / "engines" / "requirements.lock")
    except subprocess.CalledProcessError as error:
        reason = f"the engines' environment could not be built: {error.stderr.strip().splitlines()[-1:]}"
        yield from ({"bench": bench, "skipped": reason} for bench in benches.values())
        return
    stream = ldp.Stream("state", ldp.PGR("1", domain_size=D))
    rng = np.random.default_rng(4)
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name) / "reports.jsonl"
        with archive.open("wb") as file:
            for part, _ in perturbed(stream, [rng.zipf(1.5, RECORDS) % D], binary=False, rng=rng):
                file.write(part)
        for engine, bench in benches.items():
            yield measured(engine, bench, python, stream, archive)


def measured(engine: str, bench: str, python: str, stream: ldp.Stream, archive: Path) -> Line:
    """The comparison with one engine, after a check that both count the same."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [
        python,
        "-m",
        "tests.support.engines.server",
        engine,
        str(archive),
        json.dumps(stream.document()),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        answers = server.stdout

        def ask() -> str:
            print("count", file=server.stdin, flush=True)
            return answers.readline().strip()

        def count() -> str:
            aggregator = Aggregator(stream)
            with archive.open("rb") as file:
                aggregator.read(file, "archive")
            return State.of(aggregator).to_bytes()[-32:].hex()

        assert count() == ask(), f"{engine} counts otherwise"
        setup = f"pgr, d={D}, ε=1, {RECORDS} JSON frames of a report each, one core"
        line = compare(bench, count, ask, peer_name=ENGINES[engine], setup=setup, rate=(RECORDS, "records"))
        server.stdin.close()
    return line
