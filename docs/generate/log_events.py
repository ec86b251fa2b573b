"""Page of the log events, from the worker's calls and `log-events.toml`."""

import ast
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from docs.generate.markdown import fill, table

_WORKER = Path(__file__).parents[2] / "worker"
_LEVELS = ("info", "warning", "error", "exception", "critical")
_UNPACKED = "fields"
"""The table of `log-events.toml` with the fields of events whose call unpacks a mapping."""


@dataclass
class Event:
    """Levels and fields of a log event; `unpacks`: a call unpacks a mapping."""

    levels: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)
    unpacks: bool = False


def emitted() -> dict[str, Event]:
    """Returns the events that the worker's modules log, by name."""
    events: dict[str, Event] = {}
    for path in sorted(_WORKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(attr=level), args=[ast.Constant(value=str(name))]):
                    if level in _LEVELS and "." in name:
                        event = events.setdefault(name, Event())
                        event.levels.add("error" if level == "exception" else level)
                        event.fields |= {key.arg: None for key in node.keywords if key.arg}
                        event.unpacks |= any(key.arg is None for key in node.keywords)
    return events


def page() -> str:
    """Returns the page of the log events."""
    texts = tomllib.loads((Path(__file__).parent / "log-events.toml").read_text(encoding="utf-8"))
    unpacked, events = texts.pop(_UNPACKED), emitted()
    assert texts.keys() == events.keys(), f"log-events.toml: {texts.keys() ^ events.keys()}"
    assert unpacked.keys() == {name for name, event in events.items() if event.unpacks}
    rows = [("event", "level", "fields", "meaning")]
    for name, event in sorted(events.items()):
        fields = ", ".join(f"`{key}`" for key in [*event.fields, *unpacked.get(name, ())])
        rows.append((f"`{name}`", ", ".join(sorted(event.levels)), fields, texts[name]))
    return fill("log-events.md", events=table(*rows))
