"""Environment: variables that override the keys of the file, and which of them a fault comes from.

Every key of every table but ``[[streams]]`` can be overridden by ``LDP_WORKER_<TABLE>__<KEY>`` (top-level keys:
``LDP_WORKER_<KEY>``), written as in TOML; a bare word is a string and a comma separates the items of a list. A secret
may stand in a file instead, which the variable with ``_FILE`` behind it names.
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
"""Names the file."""
_NO_KEYS = (FILE_VARIABLE, "LDP_WORKER_PROCESSES")
"""The variables with the prefix that override nothing in the file: they are options of commands."""
_OF_A_FILE = "_file"
"""What stands behind a secret's key where a file has it."""
_OF_A_SERVICE = re.compile(
    "LDP_WORKER_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
    "|LDP_WORKER_([A-Z0-9_]+_)?PORT=(tcp|udp|sctp)://.*"
)
"""What Kubernetes tells every pod beside a Service whose name begins with ldp-worker: no key of ours."""


def override(tree: dict[str, Any], environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Lays the environment's values over the file's; returns which key comes from which variable.

    Args:
        tree: what the file says; changed.
        environ: all variables.
        folder: what paths are relative to.

    Raises:
        ConfigError: a variable can be no key's, or the file that it names cannot be read.
    """
    variables = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in _NO_KEYS or _is_of_a_service(variable, text):
            continue
        *tables, key = variable.removeprefix(PREFIX).lower().split("__")
        if [*tables, key][0] == "streams":
            raise ConfigError(f"{variable}: streams are configured in the file only")
        value: object = text
        if key.endswith(_OF_A_FILE) and SecretStr in _kinds(tables, key.removesuffix(_OF_A_FILE)):
            if (without := variable[: -len(_OF_A_FILE)]) in environ:
                raise ConfigError(f"{variable}: give it or {without}, not both")
            key, value = key.removesuffix(_OF_A_FILE), _secret_in(folder / text, variable)
        elif not _is_text(tables, key):
            with contextlib.suppress(ValueError, RecursionError):  # it stays a text, which its key refuses
                value = tomllib.loads(f"value = {text}")["value"]
        table = tree
        for name in tables:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{variable}: {name} is no table")
        table[key] = value
        variables[".".join([*tables, key])] = variable
    return variables


def _is_of_a_service(variable: str, text: str) -> bool:
    """Returns whether Kubernetes set a variable; by its value, where its name could be a misspelt key."""
    return "__" not in variable and any(map(_OF_A_SERVICE.fullmatch, (variable, f"{variable}={text}")))


def _secret_in(path: Path, variable: str) -> str:
    """Returns the secret in a file, without the end of its line; what was given for a path may be a secret itself."""
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else "not a text"
        raise ConfigError(f"{variable}: the file that it names cannot be read ({why})") from None
    if not text:
        raise ConfigError(f"{variable}: the file that it names is empty")
    return text


def _is_text(tables: Sequence[str], key: str) -> bool:
    """Returns whether a key's value is a text, so that digits in the environment stay one."""
    kinds = _kinds(tables, key)
    return bool(kinds & {str, SecretStr, Path}) and not kinds & {int, float, list}


def _kinds(tables: Sequence[str], key: str) -> set[Any]:
    """Returns the types that a key's value may have; none where there is no such key."""
    model: Any = File
    for name in tables:
        field = model.model_fields.get(name)
        model = field.annotation if field is not None else None
        if not (isinstance(model, type) and issubclass(model, BaseModel)):
            return set()
    field = model.model_fields.get(key)
    return set() if field is None else {field.annotation, *get_args(field.annotation)}


def traced(fault: str, variables: Mapping[str, str]) -> str:
    """Names the variables that a fault's key comes from beside it."""
    key, colon, rest = fault.partition(": ")
    path = re.split(r"[.[]", key)
    # the key that a variable sets, a part of it, or a table that it is in
    origins = [
        v for k, v in variables.items() if all(a == b for a, b in zip(k.split("."), path, strict=False))
    ]
    return f"{key} ({', '.join(origins)}){colon}{rest}" if origins else fault
