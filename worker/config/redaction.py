"""Redaction of secrets in messages about a configuration."""

import re
import tomllib
from pathlib import Path
from types import NoneType

from worker.config import address

_KINDS = {
    NoneType: "nothing",
    dict: "a table",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
}
_ENDPOINT = re.compile(rf"https?://(?P<host>{address.HOST_PORT})(?P<rest>/[^@#\s]*)?")


def is_broker(broker: str) -> bool:
    """Returns whether a text has the form host:port."""
    found = re.fullmatch(address.HOST_PORT, broker)
    return found is not None and -1 < address.host_port(broker, -1)[1] <= 65535


def is_endpoint(url: str) -> bool:
    """Returns whether a text is an HTTP URL without a user or password."""
    found = _ENDPOINT.fullmatch(url)
    return found is not None and address.host_port(found["host"], 0)[1] <= 65535


def redacted(url: str) -> str:
    """Returns a URL's scheme, hosts and ports; other parts can be secret.

    Example:
        >>> redacted("rediss://me:s3cret@cache:6380/3?password=s3cret")
        'rediss://cache:6380'
        >>> redacted("me:s3/cret@cache:6380")
        'a URL that cannot be shown'
    """
    if address.UNIX.fullmatch(url):
        return "unix://"
    found = address.URL.fullmatch(url.rstrip())
    hosts = found["hosts"].split(",") if found else []
    several = len(hosts) > 1 and not (found and found["kind"])
    if found is None or several or any(address.host_port(host, 0)[1] > 65535 for host in hosts):
        return "a URL that cannot be shown"
    return f"{found['scheme']}://{found['hosts']}"


def position(error: tomllib.TOMLDecodeError) -> str:
    """Returns kind and position of a TOML error, without text from the file."""
    what, _, where = str(error).rpartition(" (")
    return f" ({where}" if re.search(r"""["'(]""", what) else f": {what} ({where}"


def key_name(name: str) -> str:
    """Returns the name of a key; hides text that can be a value."""
    return name if re.fullmatch("[A-Za-z_]{1,40}", name) else "<a key that cannot be shown>"


def said(key: str, value: object) -> str:
    """Returns a value, or only its type if it can be a secret.

    A user can write a password under a wrong key. Therefore values of [kafka] and [redis] are hidden, except for the
    redacted URL. Elsewhere, text is shown only under a key of streams, and only if it does not have the form of an
    address.
    """
    kind = "an empty list" if value == [] else _KINDS.get(type(value), "a time")
    if ("password" in key or "secret" in key) and value is not None:
        return "a secret"
    if key == "redis.url" and isinstance(value, str):
        return redacted(value)
    if isinstance(value, str):
        return repr(value) if key.startswith("streams") and is_showable(value) else kind
    if not isinstance(value, int | float) or re.match(r"(kafka|redis)\b", key):
        return kind
    return str(value).lower() if isinstance(value, bool) else str(value)


def is_showable(text: str) -> bool:
    """Returns whether a text is not an address, which can contain a password."""
    return "@" not in text and ":/" not in text


def shown_path(path: Path) -> str:
    """Returns a path, or a placeholder if it has the form of an address."""
    return str(path) if is_showable(str(path)) else "a path that cannot be shown"
