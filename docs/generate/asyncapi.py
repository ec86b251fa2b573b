"""The AsyncAPI 3.0 description of the topics, from their schemas, encoders, settings and permissions."""

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import ldp
from ldp import frames, segments, wire
from ldp.consistency import METHODS
from ldp.oracles import ORACLES, Oracle
from ldp.snapshot import Period, chunks
from ldp.snapshot.documents import KNOWN, SCHEMA, VECTORS
from ldp.snapshot.encoding import JSON, Message
from worker.config import parse
from worker.counting.columns import Batch, Columns, Unreadable
from worker.counting.lateness import Late
from worker.kafka.client.topics import TopicSpec, specs
from worker.kafka.dead_letters.writer import ERRORS, MESSAGES, WHOLE_BYTES, KafkaDeadLetters

Object = dict[str, Any]
_ROOT = Path(__file__).parents[2]
_SNAPSHOT: Object = json.loads(
    files("ldp.snapshot").joinpath("snapshot.schema.json").read_text(encoding="utf-8")
)
_BYTES = "application/octet-stream"
_BINDING = {"bindingVersion": "0.5.0"}
_CONNECT = {
    "string": "string",
    "int32": "integer",
    "int64": "integer",
    "double": "number",
    "boolean": "boolean",
}
"""The JSON type of each type of Kafka Connect."""
_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def page() -> str:
    """Returns the description as JSON."""
    by_role = {re.sub(" of .*", "", spec.role): spec for spec in _specs()}
    channels = {
        "reports": _channel(by_role["reports"], "streams.topic", _reports(), "topic of reports"),
        "snapshots": _channel(by_role["snapshots"], "snapshots.topic", _snapshots()),
        "rows": _channel(by_role["rows"], "rows.topic", _rows()),
        "deadLetters": _channel(
            by_role["dead letters"], "dead_letters.topic", {"deadLetter": _dead_letter()}
        ),
    }
    operations = {
        "countReports": ("receive", "reports", "Counts the reports."),
        "publishSnapshots": ("send", "snapshots", "Publishes a snapshot in one transaction."),
        "readHeads": ("receive", "snapshots", "Reads the newest head before the first snapshot."),
        "publishRows": ("send", "rows", "Publishes rows in the transaction of their snapshot."),
        "sendDeadLetters": ("send", "deadLetters", "Sends a copy of a rejected or late record."),
    }
    document = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Topics of ldp-worker",
            "version": f"{wire.VERSION}.{SCHEMA}.0",
            "description": "The version consists of the version of the wire format and the version of the snapshot"
            " schema. Addresses are those of the configuration that `ldp-worker init` writes. This file is generated"
            " by `make reference`.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": JSON,
        "channels": channels,
        "operations": {
            name: {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": summary}
            for name, (action, channel, summary) in operations.items()
        },
        "components": {"schemas": _schemas()},
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _specs() -> list[TopicSpec]:
    """Returns the topics of the configuration that `ldp-worker init` writes, with rows."""
    template = files("worker.config").joinpath("template.toml").read_text(encoding="utf-8")
    return specs(parse(re.sub(r'(?m)^# (topic = "ldp-rows")', r"\1", template)), partitions=1)


def _channel(spec: TopicSpec, key: str, messages: Object, other_name: str | None = None) -> Object:
    """Returns a topic with its settings, its messages and the permissions on it."""
    settings: Object = {name: int(text) if text.isdigit() else text for name, text in spec.settings.items()}
    settings["cleanup.policy"] = [settings["cleanup.policy"]]
    compacted = (
        " A message without a value deletes its key." if settings["cleanup.policy"] == ["compact"] else ""
    )
    one = {} if other_name else {"partitions": spec.partitions}
    return {
        "address": spec.name,
        "description": f"The topic of `{key}`. The settings are those of `ldp-worker create-topics`.{compacted}",
        "messages": messages,
        "bindings": {"kafka": {**one, "topicConfiguration": settings, **_BINDING}},
        "x-permissions": _permissions(spec.name, other_name or f"`{spec.name}`"),
    }


def _permissions(topic: str, name: str) -> Object:
    """Returns the permissions on a topic by login, from the page on security."""
    text = (_ROOT / "docs/operate/secure.md").read_text(encoding="utf-8")
    needed = re.findall(rf"(?m)^kafka-acls\.sh .+ --operation (\w+) --topic {re.escape(topic)}$", text)
    table = re.findall(r"(?m)^\| (.+?) \| ((?:only|also) .+) \|$", text)
    others = {login: rights for login, rights in table if name in rights or "each topic" in rights}
    return ({"ldp-worker": f"only {', '.join(needed)}"} if needed else {}) | others


def _message(
    title: str, content_type: str, payload: Object, key: Object | None = None, headers: Object | None = None
) -> Object:
    """Returns a message; without `key` or `headers`, it has none that a reader uses."""
    found = {"title": title, "contentType": content_type, "payload": payload}
    if headers is not None:
        found["headers"] = headers
    if key is not None:
        found["bindings"] = {"kafka": {"key": key, **_BINDING}}
    return found


def _texts(names: Iterable[str], optional: Iterable[str] = (), **known: Object) -> Object:
    """Returns the schema of headers, which are texts; `known` has more about some."""
    required = [*names]
    properties = {name: {"type": "string"} | known.get(name, {}) for name in (*required, *optional)}
    return {"type": "object", "required": required, "properties": properties}


def _ref(schema: str) -> Object:
    return {"$ref": f"#/components/schemas/{schema}"}


def _reports() -> Object:
    """Returns the two forms of a frame."""
    binary = {"type": "string", "format": "binary", "description": "A [binary frame](wire-format.md#frames)."}
    return {
        "binaryFrame": _message("Reports, binary", _BYTES, binary),
        "jsonFrame": _message("Reports, JSON", JSON, _ref("frame")),
    }


def _snapshots() -> Object:
    """Returns the messages of a snapshot."""
    stream = _SNAPSHOT["$defs"]["shared"]["properties"]["stream"]["pattern"].strip("^$")
    of_all, of_window = (
        f"{stream}/{place}/({'|'.join(METHODS)})" for place in ("(all|late)", "[^/]+/[0-9]+")
    )
    own, more = (
        [name for name, _ in Message("", JSON, b"", window=window).headers(1)]
        for window in (Period("all"), Period("1h", 0, 3_600_000, final=True))
    )

    def message(title: str, key: str, payload: Object, names: list[str], content_type: str = JSON) -> Object:
        optional = [name for name in more if name not in names] if "(" in key else []
        headers = _texts(names, optional, **{"content-type": {"const": content_type}})
        return _message(title, content_type, payload, {"type": "string", "pattern": f"^{key}$"}, headers)

    labels = {"type": "array", "items": {"type": "string"}}
    numbers = {
        "type": "string",
        "format": "binary",
        "description": "Numbers as `vectors` of a body describes them.",
    }
    found = {
        "head": message("Head", f"{stream}/head", _ref("head"), own),
        "domain": message("Labels", f"{stream}/domain", _ref("domain"), own),
        "labels": message("Chunk of labels", f"{stream}/domain/labels/[0-9]+", labels, own),
        "body": message("Results of a method", of_all, _ref("body"), own),
        "windowBody": message("Results of a method in a window", of_window, _ref("body"), more),
    }
    vector = f"({of_all}|{of_window})/({'|'.join((*VECTORS, KNOWN))})/[0-9]+"
    for content_type in (chunks.FLOAT64, chunks.FLOAT32, chunks.SPARSE64, chunks.SPARSE32):
        kind = content_type.removeprefix("application/vnd.ldp.")
        title = f"Chunk of a vector, {kind}"
        found[f"vector.{kind}"] = message(title, vector, numbers, own, content_type)
    return found


def _rows() -> Object:
    """Returns the message of a row."""
    return {"row": _message("Row", JSON, _columns("value"), _columns("key"))}


def _dead_letter() -> Object:
    """Returns the message of a dead letter, with the headers that the writer sends for each kind of record."""
    sent: list[list[str]] = []
    producer = SimpleNamespace(
        send=lambda _topic, headers, **_: sent.append([name for name, _ in headers]),
    )
    stream = ldp.Stream("colours", ldp.GRR("1", domain_size=3))
    letters = KafkaDeadLetters(
        producer, stream, "colour-reports", "ldp-dead-letters", lambda: None, nullcontext
    )
    values = [b"", bytes(WHOLE_BYTES + 1)]
    batch = Batch(0, 0, 3, Columns.of([0, 1], [0, 0], values), (Unreadable(2, 3, 1, "", "checksum"),))
    letters.add(batch, np.array([1, 2], np.uint8))
    one = np.zeros(1, np.int64)
    letters.add_late(batch, Late(one, one, one, one, 1))
    required = [name for name in sent[0] if all(name in names for names in sent)]
    optional = dict.fromkeys(name for names in sent for name in names if name not in required)
    reason = {f"{ERRORS}exception.class.name": {"enum": [*map(str, MESSAGES)]}}
    value = {"type": "string", "format": "binary", "description": "The record's value, or its first bytes."}
    key = {"type": "string", "pattern": "^[A-Za-z0-9._-]+/[0-9]+/[0-9]+$"}
    return _message("Dead letter", _BYTES, value, key, _texts(required, optional, **reason))


def _schemas() -> Object:
    """Returns the schemas of the JSON payloads, in draft 7, which every AsyncAPI tool supports."""
    return {name: _draft7(schema) for name, schema in _SNAPSHOT["$defs"].items()} | {"frame": _frame()}


def _draft7(schema: Any) -> Any:
    """Returns a schema of draft 2020-12 in draft 7: without other keys next to `$ref`, and with lists of `items`."""
    if isinstance(schema, list):
        return [_draft7(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {("items" if name == "prefixItems" else name): _draft7(each) for name, each in schema.items()}
    if (place := found.pop("$ref", None)) is None:
        return found
    reference = _ref(place.removeprefix("#/$defs/"))
    return {"allOf": [reference, *found.pop("allOf", [])], **found} if found else reference


def _columns(part: str) -> Object:
    """Returns the JSON schema of a row's key or value, from the types for Kafka Connect."""
    struct = json.loads(
        files("ldp.snapshot").joinpath(f"row-{part}.connect.json").read_text(encoding="utf-8")
    )
    properties: Object = {}
    for field in struct["fields"]:
        kind = _CONNECT[field["type"]]
        column: Object = {"type": [kind, "null"] if field["optional"] else kind}
        if field.get("name", "").endswith(".Timestamp"):
            column["description"] = "Milliseconds since the epoch."
        properties[field["field"]] = column
    return {"title": struct["name"], "type": "object", "required": [*properties], "properties": properties}


def _frame() -> Object:
    """Returns the schema of a JSON frame, with the form of each protocol's reports."""
    explicit: list[Oracle] = [ldp.Response("3/4", 10), ldp.Unary("3/4", "1/4", 10)]
    number = {"type": "integer", "minimum": 0}
    forms: dict[str, Object] = {
        "number": number,
        "numbers": {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
        "text": {"type": "string", "contentEncoding": "base64", "minLength": 4, "pattern": _BASE64},
    }
    protocols: dict[str, list[str]] = {form: [] for form in forms}
    for oracle in (*(ldp.oracle(name, "1", 10) for name in ORACLES), *explicit):
        form = "text" if oracle.length is not None else "number" if len(oracle.fields) == 1 else "numbers"
        protocols[form].append(str(oracle.parameters()["protocol"]))
    described = [
        {"description": ", ".join(protocols[form]), "items": schema} for form, schema in forms.items()
    ]
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(frames) or "").split("\n\n")[3].split()).partition(
            " A record"
        )[0],
        "required": ["fingerprint", "reports"],
        "additionalProperties": False,
        "properties": {
            "fingerprint": _ref("fingerprint"),
            "reports": {"type": "array", "minItems": 1, "oneOf": described},
            "segment": {
                "type": "string",
                "description": "The segment; only if the document has the key segment, and then required.",
                "maxLength": segments.LONGEST,
                "pattern": f"^{segments.SYNTAX}$",
            },
        },
    }
