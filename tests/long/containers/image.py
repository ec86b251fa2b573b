"""The image: built as in the documentation, measured, and inspected."""

import json
import re

from tests.long.containers.said import Findings, run

NAME = "ldp-worker"


def build(findings: Findings) -> None:
    """Builds it from the Dockerfile, and reports its size."""
    run("docker", "build", "--tag", NAME, ".")
    size = int(run("docker", "image", "inspect", "--format", "{{.Size}}", NAME).stdout)
    findings.say(f"image {NAME}: {megabytes(size)} unpacked")
    history = run("docker", "history", "--no-trunc", "--human=false", "--format", "{{json .}}", NAME).stdout
    for layer in map(json.loads, history.splitlines()):
        if (weight := int(layer["Size"])) > 0:
            findings.say(f"  layer of {megabytes(weight)}: {' '.join(layer['CreatedBy'].split())[:90]}")


def megabytes(size: int) -> str:
    """A size in words."""
    return f"{size / 1e6:.1f} MB"


def inside(*command: str, options: tuple[str, ...] = ()) -> str:
    """Output of a command in a container of the image, with the limits of compose."""
    confined = (
        "--read-only",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--network",
        "none",
    )
    start = ("docker", "run", "--rm", *confined, *options, "--entrypoint", command[0], NAME)
    return run(*start, *command[1:]).stdout


def look(findings: Findings) -> None:
    """Checks its contents, and that it runs on another CPU than the one it was built on."""
    configured = json.loads(run("docker", "image", "inspect", NAME).stdout)[0]["Config"]
    findings.see(configured["User"] == "10001:10001", "the image's user is 10001:10001", configured["User"])
    volumes = sorted(configured.get("Volumes") or {})
    findings.see(
        volumes == ["/var/cache/ldp-worker"], "its one volume is that of compiled kernels", f"{volumes}"
    )

    bill = json.loads(inside("cat", "/opt/ldp-worker/share/doc/sbom.json"))
    listed = {part["name"] for part in [*bill["components"], bill["metadata"]["component"]]}
    names = "from importlib import metadata as m; print(*{one.metadata['Name'] for one in m.distributions()})"
    there = {re.sub(r"[-_.]+", "-", one).lower() for one in inside("python", "-c", names).split()}
    findings.see(
        listed == there - {"pip", "setuptools"}, f"its bill of materials names its {len(listed)} packages"
    )

    kernels = (
        "import os; from pathlib import Path; cache = Path(os.environ['NUMBA_CACHE_DIR'])\n"
        "count = lambda: sum(path.suffix == '.nbc' for path in cache.rglob('*'))\n"
        "from ldp import kernels; from worker.counting import lateness; from worker.kafka.decoding import records\n"
        "before = count(); kernels.warm(); lateness.warm(); lateness.warm_spread();"
        " records.warm(); records.warm_codecs()\n"
        "print(before, count() - before)"
    )
    kept, compiled = map(int, inside("python", "-c", kernels).split())
    findings.see(
        kept > 0 and compiled == 0, f"on this CPU all {kept} kernels are the image's", f"{compiled} compiled"
    )
    options = ("--env", "NUMBA_CPU_NAME=generic", "--env", "NUMBA_CPU_FEATURES=")
    kept, compiled = map(int, inside("python", "-c", kernels, options=options).split())
    findings.see(
        compiled >= kept > 0, f"on another CPU {compiled} are compiled and kept, on a read-only root"
    )
