"""Topics as kcat reads them, and the contract of the snapshot topic."""

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema

import ldp
from deploy.local import services
from ldp.snapshot import Incomplete, assemble
from tests.support.harness.truth import METHODS
from tests.support.harness.waiting import TIMEOUT_SECONDS
from tests.support.harness.world import World

SCHEMA = json.loads(
    (Path(ldp.__file__).parent / "snapshot" / "snapshot.schema.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Message:
    """A message of a topic."""

    offset: int
    key: str
    value: bytes
    headers: Mapping[str, str]


def foreign(kafka: str, topic: str) -> list[Message]:
    """Reads all committed messages of a topic of one partition with kcat."""
    kcat = services.program("kcat", "kcat")
    assert kcat, "there is no kcat on PATH (Debian: apt-get install kcat)"
    layout = "%o %K %S\\n%k%s%h\\n"  # lengths first, so that any bytes can follow
    command = [kcat, "-b", kafka, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", layout]
    command += ["-X", "isolation.level=read_committed"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return _kcat(done.stdout)


def _kcat(output: bytes) -> list[Message]:
    messages, at = [], 0
    while at < len(output):
        line_end = output.index(b"\n", at)
        offset, key_size, size = map(int, output[at:line_end].split())
        key = line_end + 1
        value = key + max(0, key_size)
        headers = value + max(0, size)
        at = output.index(b"\n", headers) + 1
        pairs = [pair.split("=", 1) for pair in output[headers : at - 1].decode().split(",") if pair]
        messages.append(Message(offset, output[key:value].decode(), output[value:headers], dict(pairs)))
    return messages


def assert_snapshot_topic(world: World) -> int:
    """Asserts the contract of the snapshot topic; returns the last number."""
    # Sequences have no gap. Each snapshot is whole and has one identity. A final window is never published again.
    # Heads, final windows and all documents of the first and the newest snapshot are valid under the schema.
    everything = foreign(world.kafka, world.config.snapshots.topic)
    messages = [message for message in everything if message.key.startswith(f"{world.name}/")]
    by_sequence: dict[int, list[Message]] = {}
    for message in messages:
        by_sequence.setdefault(int(message.headers["sequence"]), []).append(message)
    assert by_sequence
    assert list(by_sequence) == list(range(1, len(by_sequence) + 1))
    reports, finals = 0, set[str]()
    received: dict[str, tuple[dict[str, bytes], bytes]] = {}
    for sequence, sent in by_sequence.items():
        untimed = [message for message in sent if message.value and "end" not in message.headers]
        late = [message for message in untimed if message.key.startswith(f"{world.name}/late/")]
        parts = [message for message in untimed if message not in late]
        for message in parts:
            received[message.key] = {k: v.encode() for k, v in message.headers.items()}, message.value
            with contextlib.suppress(Incomplete):
                assert assemble(world.name, received).identity == parts[0].headers["snapshot"]
                assert message is parts[-1]
        _assert_headers(parts, sequence, {})
        whole = sequence in (1, len(by_sequence))
        head = _assert_all_time(world, parts, sequence, whole)
        # every snapshot knows at least what the one before it knew
        assert head["reports"] >= reports
        reports = head["reports"]
        if late:
            _assert_late(world, late, sequence, head, whole)
        beside = [message for message in sent if message.value and "end" in message.headers]
        for window in dict.fromkeys(_window(message.key) for message in beside):
            ours = [message for message in beside if _window(message.key) == window]
            _assert_window(world, ours, sequence, head, whole)
            assert window not in finals, f"{window} was final, and is published again in snapshot {sequence}"
            if ours[0].headers["final"] == "true":
                finals.add(window)
    return len(by_sequence)


def _window(key: str) -> str:
    """Returns the name and start of a key's window."""
    return "/".join(key.split("/")[1:3])


def _assert_headers(parts: Sequence[Message], sequence: int, more: Mapping[str, str]) -> None:
    """Asserts that messages belong to one snapshot."""
    (identity,) = {message.headers["snapshot"] for message in parts}
    assert parts[0].headers["schema"] in ("1", "2")  # 2 is a population of several documents
    for message in parts:
        assert message.headers == {
            "content-type": message.headers["content-type"],
            "schema": parts[0].headers["schema"],
            "sequence": str(sequence),
            "parts": str(len(parts)),
            "snapshot": identity,
            **more,
        }


def _documents(world: World, parts: Sequence[Message], prefix: str, whole: bool) -> dict[str, Any]:
    """Returns JSON documents by key; validates the head, or all."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    named = {each.fingerprint for each in world.served.fleet.documents}
    documents = {
        message.key.removeprefix(prefix): json.loads(message.value)
        for message in parts
        if message.headers["content-type"] == "application/json"
    }
    for name, document in documents.items():
        if whole or name == "head":
            validator.validate(document)
        assert document["stream"] == world.name
        assert bytes.fromhex(document["fingerprint"]) in named
    return documents


def _assert_all_time(world: World, parts: Sequence[Message], sequence: int, whole: bool) -> Any:
    """Asserts a snapshot of all time, or only a head; returns the head."""
    documents = _documents(world, parts, f"{world.name}/", whole)
    head = documents["head"]
    if list(documents) == ["head"]:
        assert head["sequence"] == sequence
        assert (head["reports"], "floors" in head) == (0, True)
        return head
    bodies = [f"all/{method}" for method in world.methods]
    assert [key for key in documents if key != "domain"] == ["head", *bodies]
    for key, document in documents.items():
        if key != "domain":
            assert document["sequence"] == sequence
            assert document["offsets"] == head["offsets"]
            assert document["reports"] == head["reports"]
        if key.startswith("all/"):
            assert document["method"] == key.removeprefix("all/")
    return head


def _assert_late(world: World, parts: Sequence[Message], sequence: int, head: Any, whole: bool) -> None:
    """Asserts the released reports that are in no window."""
    _assert_headers(parts, sequence, {})
    assert parts[0].headers["snapshot"] != head["snapshot"]
    documents = _documents(world, parts, f"{world.name}/late/", whole)
    assert list(documents) == world.methods
    for method, document in documents.items():
        assert (document["method"], document["sequence"]) == (method, sequence)
        assert document["window"] == {"name": "late", "start": None, "end": None, "final": False}
        assert document["offsets"] == head["offsets"]
        assert 0 < document["reports"] <= head["reports"]


def _assert_window(world: World, parts: Sequence[Message], sequence: int, head: Any, whole: bool) -> None:
    """Asserts the snapshot of a window, of the same offsets as its head."""
    window = _window(parts[0].key)
    name, start = window.split("/")
    end, final = (parts[0].headers[said] for said in ("end", "final"))
    _assert_headers(parts, sequence, {"end": end, "final": final})
    assert parts[0].headers["snapshot"] != head["snapshot"]
    documents = _documents(world, parts, f"{world.name}/{window}/", whole or final == "true")
    assert list(documents) == list(METHODS)
    said = {"name": name, "start": _date(start), "end": _date(end), "final": final == "true"}
    # the head's progress has passed exactly the final windows
    assert (int(end) <= head["windows"][name]["closed"]) == (final == "true")
    for method, document in documents.items():
        assert (document["method"], document["sequence"]) == (method, sequence)
        assert (document["window"], document["offsets"]) == (said, head["offsets"])
        assert 0 < document["reports"] <= head["reports"]


def _date(milliseconds: str) -> str:
    seconds, rest = divmod(int(milliseconds), 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"
