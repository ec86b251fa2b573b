"""Peers on the JVM: their jars through Maven, and the peer's compiled source file, kept in the cache."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from deploy.local.services import MAVEN, cache, program

JDK = "default-jdk-headless"
"""Debian's package of javac."""


class MissingError(RuntimeError):
    """A peer cannot be had here."""


def classpath(pom: Path, source: Path) -> str:
    """The class path of a compiled source file and of its pom's dependencies; the first call makes both."""
    kind = hashlib.sha256(pom.read_bytes() + source.read_bytes()).hexdigest()[:12]
    folder = cache() / f"bench-{source.stem}-{kind}"
    if not folder.is_dir():
        maven, javac = (program(*each, _say) for each in (("mvn", MAVEN), ("javac", JDK)))
        if maven is None or javac is None:
            raise MissingError("mvn and javac are needed")
        _say(f"building {folder} from {pom.name} and {source.name} ...")
        partial = folder.with_name(f"{folder.name}.{os.getpid()}")
        jars = partial / "jars"
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        for command in (
            [maven, "-B", "-q", "--strict-checksums", "-f", str(pom), *copy],
            [javac, "-d", str(partial / "classes"), "-cp", f"{jars}/*", str(source)],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                shutil.rmtree(partial, ignore_errors=True)
                said = (done.stdout + done.stderr).strip().splitlines()
                raise MissingError(f"{Path(command[0]).name} failed: {said[:1]}")
        partial.rename(folder)
    return f"{folder / 'classes'}:{folder / 'jars'}/*"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
