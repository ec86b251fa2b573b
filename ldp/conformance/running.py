"""Runs a client's command, which maps lines of values to lines of frames."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ldp import frames

if TYPE_CHECKING:
    import numpy.typing as npt

    from ldp.conformance.channel import Reports
    from ldp.stream import Stream

PLACE = "{}"  # Placeholder for the document's path; a command without one gets the path as its last argument
STORE = "{store}"  # Placeholder for the path of an empty folder, in which a client keeps its stores
_SHOWN = 300
_PLACES = 3


class ClientError(RuntimeError):
    """Raised if a client fails, times out or writes invalid output."""


class Command:
    """A client's command, with one stream's document in a temporary file.

    `PLACE` in the command stands for the document's path, and `STORE` for a folder. `seconds` is the time
    limit of one run.
    """

    def __init__(self, command: Sequence[str], stream: Stream, seconds: float) -> None:
        self.stream, self._seconds = stream, seconds
        self._folder = tempfile.TemporaryDirectory(prefix="ldp-client.")
        path = Path(self._folder.name) / "document.json"
        path.write_text(json.dumps(stream.document(), ensure_ascii=False), encoding="utf-8")
        store = Path(self._folder.name) / "store"
        store.mkdir()
        placed = [part.replace(PLACE, str(path)).replace(STORE, str(store)) for part in command]
        self.arguments = placed if placed != list(command) else [*command, str(path)]

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def name(self, value: int) -> str:
        """Returns a value's label or index. Raises ClientError for a line break."""
        if self.stream.labels is None:
            return str(value)
        if len(self.stream.labels[value].splitlines()) != 1:
            raise ClientError(f"label {value} has a line break; the client reads one label per line")
        return self.stream.labels[value]

    def report(self, values: npt.NDArray[np.int64]) -> Reports:
        """Runs the client. Returns one report per value. Raises ClientError."""
        return decoded(self.stream, self.answers([self.name(int(value)) for value in values]))

    def answers(self, lines: Sequence[str]) -> list[bytes]:
        """Runs the client; returns one line per input line. Raises ClientError."""
        given = "".join(f"{line}\n" for line in lines).encode()
        try:
            done = subprocess.run(
                self.arguments, input=given, capture_output=True, timeout=self._seconds, check=False
            )
        except OSError as error:
            raise ClientError(f"{self.arguments[0]} cannot be run: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            raise ClientError(f"the client did not exit within {self._seconds:g} s") from None
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip()[-_SHOWN:]
            raise ClientError(f"the client exited with {done.returncode}: {message or 'no output on stderr'}")
        written = done.stdout.splitlines()
        if len(written) != len(lines):
            raise ClientError(
                f"the client wrote {len(written):,} lines for {len(lines):,} values; each value needs one line"
            )
        return written


def decoded(stream: Stream, lines: Sequence[bytes]) -> Reports:
    """Decodes one report per line. Raises ClientError for any other line."""
    records = [line if line.startswith(b"{") else _unhexed(line, i) for i, line in enumerate(lines)]
    sizes = np.cumsum([0, *map(len, records)])
    # no weight check, because `channel` tests how frequent unlikely reports are
    found = frames.decode(stream, b"".join(records), sizes[:-1], sizes[1:], check_weight=False)
    if found.reasons:
        places = sorted(found.reasons.items())
        listed = ", ".join(f"line {i + 1} ({reason})" for i, reason in places[:_PLACES])
        more = f" and {len(places) - _PLACES:,} more" if len(places) > _PLACES else ""
        raise ClientError(f"a worker would reject frames: {listed}{more}")
    if (odd := np.flatnonzero(found.counts != 1)).size:
        raise ClientError(f"line {odd[0] + 1} has {found.counts[odd[0]]} reports; each line needs 1")
    return found.reports


def _unhexed(line: bytes, i: int) -> bytes:
    try:
        return bytes.fromhex(line.decode("ascii"))
    except ValueError:
        raise ClientError(f"line {i + 1} is neither a JSON frame nor a binary one in hexadecimal") from None
