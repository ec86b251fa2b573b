"""Environment variables that override keys of the file.

``LDP_WORKER_<TABLE>__<KEY>`` (top-level keys: ``LDP_WORKER_<KEY>``) overrides any key outside ``[[streams]]``.
Values are written as in TOML. A bare word is a string, and a comma separates the items of a list.
``<VARIABLE>_FILE`` names a file with a secret.
"""

import contextlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr

from worker.config.faults import ConfigError, reason
from worker.config.schema import File

PREFIX = "LDP_WORKER_"
FILE_VARIABLE = "LDP_WORKER_CONFIG"
"""Variable with the path of the configuration file."""
_NO_KEYS = (FILE_VARIABLE, "LDP_WORKER_PROCESSES")
"""Variables with the prefix that set options of commands."""
_OF_A_FILE = "_file"
"""Suffix of a variable that names a file with a secret."""
_OF_A_SERVICE = re.compile(
    "LDP_WORKER_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
    "|LDP_WORKER_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://.*"
)
"""Variables that Kubernetes sets for a Service named ldp-worker or ldp-worker-…."""


def override(tree: dict[str, Any], environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Overrides values in place; returns the variable of each changed key.

    Raises:
        ConfigError: a variable sets a key of a stream, names no table, or names a file that cannot be read.
    """
    variables = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in _NO_KEYS or _is_of_a_service(variable, text):
            continue
        *tables, key = variable.removeprefix(PREFIX).lower().split("__")
        if [*tables, key][0] == "streams":
            raise ConfigError(f"{variable}: streams are configured in the file only")
        value: object = text
        if key.endswith(_OF_A_FILE) and SecretStr in _types_of(tables, key.removesuffix(_OF_A_FILE)):
            if (without := variable[: -len(_OF_A_FILE)]) in environ:
                raise ConfigError(f"{variable}: give it or {without}, not both")
            key, value = key.removesuffix(_OF_A_FILE), _secret_in(folder / text, variable)
        elif not _is_text(tables, key):
            with contextlib.suppress(
                ValueError, RecursionError
            ):  # the value stays text, which the key rejects
                value = tomllib.loads(f"value = {text}")["value"]
        table = tree
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{variable}: {name} is not a table")
        table[key] = value
        variables[".".join([*tables, key])] = variable
    return variables


def _is_of_a_service(variable: str, text: str) -> bool:
    return "__" not in variable and any(map(_OF_A_SERVICE.fullmatch, (variable, f"{variable}={text}")))


def _secret_in(path: Path, variable: str) -> str:
    """Reads a secret; errors hide the path, which may be the secret itself."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "not a text"
        raise ConfigError(f"{variable}: the file that it names cannot be read ({why})") from None
    if not text:
        raise ConfigError(f"{variable}: the file that it names is empty")
    return text


def _is_text(tables: Sequence[str], key: str) -> bool:
    """Returns whether a key takes only text; if so, digits stay text."""
    kinds = _types_of(tables, key)
    return bool(kinds & {str, SecretStr, Path}) and not kinds & {int, float, list}


def _types_of(tables: Sequence[str], key: str) -> set[Any]:
    model: Any = File
    for name in tables:
        field = model.model_fields.get(name)
        model = field.annotation if field is not None else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return set()
    field = model.model_fields.get(key)
    return set() if field is None else {field.annotation, *get_args(field.annotation)}


def traced(fault: str, variables: Mapping[str, str]) -> str:
    """Returns a fault with the names of the variables that set its key."""
    key, colon, rest = fault.partition(": ")
    path = re.split(r"[.[]", key)
    # a variable matches the key itself, a part of its value, and the tables above it
    origins = [
        v for k, v in variables.items() if all(a == b for a, b in zip(k.split("."), path, strict=False))
    ]
    return f"{key} ({', '.join(origins)}){colon}{rest}" if origins else fault
