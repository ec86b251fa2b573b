"""Error messages for configurations: key, redacted value, allowed values."""

import difflib
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from worker.config.redaction import key_name, said
from worker.config.schema import File
from worker.config.values import LABEL_TAGS

_MANY = 20
"""Maximum number of reported faults."""
_ALLOWED = {
    "string_type": "a string is needed, in quotes",
    "path_type": "a path is needed, in quotes",
    "int_type": "a whole number is needed",
    "float_type": "a number is needed",
    "bool_type": "true or false is needed",
    "string_or_int": "a string or a whole number is needed",
    "literal_error": "allowed is {expected}",
    "missing": "it is needed",
    "too_short": "at least one is needed",
    "string_too_short": "at least one character is needed",
    "string_too_long": "at most {max_length} characters are allowed",
    "list_type": "a list is needed, in square brackets",
    "dict_type": "a table is needed",
    "model_type": "a table is needed",
    "value_error": "{error}",
}
"""Allowed values, by the type of pydantic's error."""
_ARRAYS = {"streams": "stream", "queries": "query"}
"""Keys of arrays of tables, and the name of an element."""


class ConfigError(ValueError):
    """An invalid configuration; the message has a line for each fault."""


def config_error(error: ValidationError) -> ConfigError:
    """Converts pydantic's error, without repeated faults."""
    faults = dict.fromkeys(_fault(fault) for fault in error.errors(include_url=False))
    more = [f"... and {len(faults) - _MANY} more faults"] if len(faults) > _MANY else []
    return ConfigError("\n".join([*faults][:_MANY] + more))


def _fault(fault: Any) -> str:
    """Formats ``key: value given; what is allowed``, without secrets."""
    path, kind = [part for part in fault["loc"] if part not in LABEL_TAGS], fault["type"]
    if path[-1] in ("str", "int") and kind != "extra_forbidden":  # a type of a union instead of a key
        path.pop()
        kind = "string_or_int"
    value = None if kind == "missing" else fault["input"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{key_name(part)}" for part in path)[1:]
    if (
        kind == "extra_forbidden"
    ):  # the key can be misspelt, so the message hides its value, which can be a secret
        keys = list(_model(path[:-1]).model_fields)
        close = difflib.get_close_matches(str(path[-1]), keys, n=1)
        meant = f"did you mean {close[0]}? " if close else _suggested_heading(path)
        return f"{key}: no such key; {meant}allowed are {', '.join(keys)}"
    allowed = _ALLOWED[kind].format_map(fault.get("ctx", {})) if kind in _ALLOWED else fault["msg"]
    if isinstance(value, Mapping) and kind == "value_error":
        return f"{key}.{key_in(allowed, value, '')}".removesuffix(".") + f": {allowed}"
    if path[-1] in _ARRAYS and kind in ("missing", "too_short", "list_type"):
        heading = ".".join(part for part in path if isinstance(part, str))
        allowed = f"write [[{heading}]], in double brackets, above each {_ARRAYS[path[-1]]}"
    elif isinstance(path[-1], str) and kind == "model_type":
        allowed += f", under [{key}]"
    return f"{key}: {said(key, value)} given; {allowed}"


def key_in(message: str, keys: Container[str], default: str) -> str:
    """Returns the first word of a message that is a key, or the default.

    Example:
        >>> key_in("only one of prime and dimension given", {"protocol", "dimension"}, "protocol")
        'dimension'
    """
    return next((word for word in re.findall(r"\w+", message) if word in keys), default)


def refuse_doubles(values: Iterable[tuple[str, str]]) -> None:
    """Raises ConfigError for the second of two keys with the same value."""
    taken = set()
    for key, value in values:
        if value in taken:
            kind = "name" if key.endswith(".name") else "topic"
            raise ConfigError(
                f"{key}: {said('streams', value)} given; it must be a {kind} without other uses"
            )
        taken.add(value)


def with_names(fault: str, tree: Mapping[str, Any]) -> str:
    """Replaces indices of streams and queries in a fault's key by names.

    Example:
        >>> with_names("streams[0].g: g is 1; allowed is 2 to 65536", {"streams": [{"name": "colours"}]})
        'streams[colours].g: g is 1; allowed is 2 to 65536'
    """
    key, colon, rest = fault.partition(": ")
    table: Any = tree

    def name(found: re.Match[str]) -> str:
        nonlocal table
        table = table[found[1]][int(found[2])]
        name = table.get("name") if isinstance(table, Mapping) else None
        return (
            f"{found[1]}[{name}]" if isinstance(name, str) and re.fullmatch(r"[\w .-]+", name) else found[0]
        )

    return re.sub(rf"({'|'.join(_ARRAYS)})\[(\d+)\]", name, key) + colon + rest


def _suggested_heading(path: Sequence[object]) -> str:
    tables = (name for name, field in File.model_fields.items() if [*_tables(field.annotation)])
    meant = [table for table in tables if len(path) == 1 and path[0] in _model((table,)).model_fields]
    return f"did you mean {meant[0]}.{path[0]}, below its heading? " if len(meant) == 1 else ""


def _model(path: Sequence[object]) -> type[BaseModel]:
    model: type[BaseModel] = File
    for part in path:
        if isinstance(part, str):
            model = next(_tables(model.model_fields[part].annotation))
    return model


def _tables(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _tables(argument)


def reason(error: OSError | UnicodeDecodeError) -> str:
    """Returns the reason why a file cannot be read, without the path."""
    return str(error.strerror if isinstance(error, OSError) else error)
