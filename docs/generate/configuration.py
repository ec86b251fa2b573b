"""Pages of the configuration keys, from the schema."""

import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from docs.generate.markdown import fill, table
from worker.config import schema

_TYPES = {
    bool: "boolean",
    float: "number",
    int: "integer",
    str: "string",
    SecretStr: "string",
    Path: "path",
    schema.QueryTable: "table",
}
_UNITS = {"_seconds": " (seconds)", "_bytes": " (bytes)"}


def worker() -> str:
    """Returns the page of all keys outside `[[streams]]`."""
    tables = {
        name: keys(type(field.default), f"{name}.")
        for name, field in schema.File.model_fields.items()
        if isinstance(field.default, schema.Table)
    }
    outputs = tables["snapshots"] + tables["rows"] + tables["dead_letters"]
    return fill(
        "configuration.md",
        worker=_page(keys(schema.File)),
        kafka=_page(tables["kafka"]),
        redis=_page(tables["redis"]),
        http=_page(tables["http"]),
        outputs=_page(outputs),
        uploads=_page(tables["gateway"] + keys(schema.Ohttp, "gateway.ohttp.") + tables["shuffle"]),
    )


def streams() -> str:
    """Returns the page of the keys of `[[streams]]`."""
    return fill(
        "configuration-streams.md",
        streams=_page(keys(schema.StreamTable, "streams.")),
        queries=_page(keys(schema.QueryTable, "streams.queries.")),
    )


def keys(model: type[schema.Table], prefix: str = "") -> list[tuple[str, str, str, str]]:
    """Returns name, type, default and description of a table's keys."""
    return [
        (f"`{prefix}{name}`", kind(name, field), default(field), " ".join((field.description or "").split()))
        for name, field in model.model_fields.items()
        if field.description
    ]


def default(field: FieldInfo) -> str:
    """Returns the default of a key as TOML, or an empty string."""
    if field.is_required():
        return "required"
    return "" if field.default is None else f"`{json.dumps(field.default)}`"


def kind(name: str, field: FieldInfo) -> str:
    """Returns the type of a key, with its unit."""
    if isinstance(field.default, str) and re.fullmatch("[0-9]+[smhd]", field.default):
        return "duration"
    unit = next((text for suffix, text in _UNITS.items() if name.endswith(suffix)), "")
    return _kind(field.annotation) + unit


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return (
            ", ".join(f"`{json.dumps(each)}`" for each in arguments[:-1])
            + f" or `{json.dumps(arguments[-1])}`"
        )
    if origin is dict:
        return "table"
    if origin is list:
        return f"list of {_kind(arguments[0]).replace(' or ', 's or ')}s"
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_kind(each) for each in arguments if each is not NoneType))
    return _TYPES[annotation]


def _page(rows: list[tuple[str, str, str, str]]) -> str:
    return table(("key", "type", "default", "description"), *rows)
