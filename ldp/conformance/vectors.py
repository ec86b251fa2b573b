"""Tests a client that has scripted coins against test vectors.

The vectors are in ``tests/vectors/wire-1/reports``. tests/vectors/README.md defines how a seed determines the coins.
Production clients have no option for scripted coins, so the tests need a special build of the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ldp import frames
from ldp.arguments import as_json
from ldp.conformance.running import ClientError, Command, decoded
from ldp.stream import Stream


def read(path: Path) -> dict[str, list[Any]]:
    """Returns the vectors of a file or folder, as {"streams": […]}.

    Raises OSError, ValueError for invalid JSON or an empty folder, and TypeError or AttributeError for other content.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ValueError("the folder has no *.json")
    streams: list[Any] = []
    for file in files:
        content = as_json(file.read_bytes())
        streams += content.get("streams", [content])
    return {"streams": streams}


def differences(command: Sequence[str], vectors: Mapping[str, Any], seconds: float) -> Iterator[str]:
    """Yields each stream's first difference from the vectors, as text.

    `vectors` has the format that `read` returns. The command reads lines with a seed in hexadecimal, a space and a
    value: a label if the stream has labels, else an index. For each line it writes a frame. Raises KeyError for invalid
    vectors.
    """
    for vector in vectors["streams"]:
        stream = Stream.from_document("vectors", vector["document"])
        names = dict(enumerate(stream.labels or ()))
        lines = [f"{case['seed']} {names.get(case['value'], case['value'])}" for case in vector["cases"]]
        with Command(command, stream, seconds) as client:
            try:
                made = decoded(stream, client.answers(lines))
            except ClientError as error:
                yield f"{vector['name']}: {error}"
                continue
        due = [case["frame"] for case in vector["cases"]]
        sent = [frames.encode(stream, made[i : i + 1]).hex() for i in range(made.size)]
        for i, (one, other) in enumerate(zip(sent, due, strict=True)):
            if one != other:
                yield f"{vector['name']}: case {i + 1} of {len(due)} is {_short(one)}; expected {_short(other)}"
                break


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
